// The support weights of a block's questions (Algorithm 4, select_inputs): linear learners over all features.
//
// On chip, a question's threads have its own. In global memory the weights of a block's questions for a feature lie side
// by side, and all of its questions' threads learn them together: a trip to memory for each active feature, not for each
// active feature and question. Threads that have no question, in a last block that is not full, take part in that.

struct Support {
  Shared& shared;
  float *weights, *momentum;  // where they are learned, feature 0
  float *saved, *saved_momentum;  // where they are between launches
  int local, learners;  // number of the question in its block; how many the block has

  __device__ __forceinline__ Support(Shared& shared, const State& state, int run, int part, int local)
      : shared(shared), local(local), learners(min(QUESTIONS_PER_BLOCK, QUESTIONS - part * QUESTIONS_PER_BLOCK)) {
    constexpr size_t BLOCK = (size_t)FEATURES * SIDE_BY_SIDE;
    constexpr int PARTS = BLOCKS - DISCOVERY_APART;
    const size_t at = SUPPORT_SHARED ? (size_t)run * QUESTIONS + part * QUESTIONS_PER_BLOCK + local
                                     : (size_t)run * PARTS + part;
    saved = state.support + at * BLOCK;
    saved_momentum = LINEAR_MOMENTUM ? state.support_momentum + at * BLOCK : nullptr;
    weights = SUPPORT_SHARED ? shared.questions[local].support : saved;
    momentum = SUPPORT_SHARED ? shared.questions[local].support_momentum : saved_momentum;
  }

  // Of this question alone.
  __device__ __forceinline__ Column<SIDE_BY_SIDE> column() const { return {weights + (SUPPORT_SHARED ? 0 : local)}; }

  __device__ __forceinline__ void load(int rank) const {
    if (!SUPPORT_SHARED) return;
    for (int f = rank; f < FEATURES; f += QUESTION_THREADS) {
      weights[f] = saved[f];
      if (LINEAR_MOMENTUM) momentum[f] = saved_momentum[f];
    }
  }

  __device__ __forceinline__ void store(int rank) const {
    if (!SUPPORT_SHARED) return;
    for (int f = rank; f < FEATURES; f += QUESTION_THREADS) {
      saved[f] = weights[f];
      if (LINEAR_MOMENTUM) saved_momentum[f] = momentum[f];
    }
  }

  // Forward: what the weights of x_t and of x_{t+1} sum to, this thread's part of it.
  __device__ __forceinline__ void sum(u32 i, float (&sums)[NUM_SUMS], int rank) const {
    if constexpr (!SUPPORT_SHARED) return sum_together(i);
    const Slot *active_t = shared.active[i % 3], *active_next = shared.active[(i + 1) % 3];
#pragma unroll
    for (int c = 0; c < chunks<QUESTION_THREADS>(); ++c) {
      const int feature_t = feature_at<QUESTION_THREADS>(active_t, c, rank);
      const int feature_next = feature_at<QUESTION_THREADS>(active_next, c, rank);
      if (feature_t >= 0) sums[SUPPORT_T] += weights[feature_t];
      if (feature_next >= 0) sums[SUPPORT_NEXT] += weights[feature_next];
    }
  }

  // The same for all questions of the block, by all of their threads.
  __device__ __forceinline__ void sum_together(u32 i) const {
    constexpr int CHUNKS = chunks<ALL_QUESTION_THREADS>();
    const int lane = threadIdx.x % 32;
    Weights<SIDE_BY_SIDE> w[2][CHUNKS] = {};
#pragma unroll
    for (int list = 0; list < 2; ++list)
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {  // all loads at once
        const int feature = feature_at<ALL_QUESTION_THREADS>(shared.active[(i + list) % 3], c, threadIdx.x);
        if (feature >= 0) w[list][c] = weights_of<SIDE_BY_SIDE>(weights, feature);
      }
    float sums[2 * SIDE_BY_SIDE] = {};
#pragma unroll
    for (int list = 0; list < 2; ++list)
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int j = 0; j < SIDE_BY_SIDE; ++j) sums[list * SIDE_BY_SIDE + j] += w[list][c].x[j];
    warp_sums(sums, lane);
    if (writes_sum<2 * SIDE_BY_SIDE>(lane))
      shared.support_sums[threadIdx.x / 32][owned_sum<2 * SIDE_BY_SIDE>(lane)] = sums[0];
  }

  // After barrier 1: C_{t+1} and the sums over the question's warps give its error, and the weights of x_t learn.
  __device__ __forceinline__ void learn(u32 i, const float (&total)[MAIN_SUMS], const Scalars& scalars, int rank) const {
    if constexpr (SUPPORT_SHARED) {
      const float error = total[CUMULANT_NEXT] + scalars.gamma * total[SUPPORT_NEXT] - total[SUPPORT_T];
      Selection& selection = shared.questions[local].selection;
      update_linear<QUESTION_THREADS, 1>(weights, momentum, shared.active[i % 3], shared.present[i % 3], {{error}}, 1,
                                         scalars.alpha_linear, scalars.linear_nu, rank,
                                         [&](int) -> Selection& { return selection; });
    } else {
      if (rank == 0) {
        float at_t = 0.0f, next = 0.0f;
#pragma unroll
        for (int w = 0; w < ALL_QUESTION_WARPS; ++w) {
          at_t += shared.support_sums[w][local];
          next += shared.support_sums[w][SIDE_BY_SIDE + local];
        }
        shared.support_errors.x[local] = total[CUMULANT_NEXT] + scalars.gamma * next - at_t;
      }
      learn_together(i, scalars);
    }
  }

  // The same for all questions of the block, once each has written its error.
  __device__ __forceinline__ void learn_together(u32 i, const Scalars& scalars) const {
    group_sync_twice<ALL_QUESTION_THREADS>(ALL_QUESTIONS_BARRIER);
    update_linear<ALL_QUESTION_THREADS, SIDE_BY_SIDE>(
        weights, momentum, shared.active[i % 3], shared.present[i % 3], shared.support_errors, learners,
        scalars.alpha_linear, scalars.linear_nu, threadIdx.x,
        [&](int j) -> Selection& { return shared.questions[j].selection; });
  }

  __device__ static __forceinline__ void all_questions_sync() {
    group_sync<ALL_QUESTION_THREADS>(ALL_QUESTIONS_BARRIER);
  }

  // A step of a thread that has no question; where none of its block has one, there is nothing to take part in.
  __device__ __forceinline__ void step_without_question(u32 i, const Scalars& scalars) const {
    const bool takes_part = !SUPPORT_SHARED && learners > 0;
    if (takes_part) sum_together(i);
    barrier_1();
    if (takes_part) {
      learn_together(i, scalars);
      all_questions_sync();
    }
    barrier_2();
  }
};
