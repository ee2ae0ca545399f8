// The main warps: they keep the clock, learn the base features of the main learner (update_main, Algorithm 2), hold the
// meeting of the blocks, choose the action (Algorithm 1, lines 6 to 8) and step the environment (the discovery warps help).

struct BaseFeatures {  // the block's own base features of the main learner (Algorithm 2), decayed lazily
  Shared& shared;
  float alpha, nu;
  int first;  // own features are first .. first + OWN_FEATURES - 1

  // The block's own features among the active ones, by one warp; returns how many. `seen` is how many active ones of
  // all this lane has seen.
  __device__ __forceinline__ int list_own(const Slot* active, u16* own, int lane, u32& seen) const {
    int count = 0;
    seen = 0;
#pragma unroll 4
    for (int k = 0; k < SLOTS; k += 32) {
      const int feature = k + lane < SLOTS ? active[k + lane] : -1;
      seen += feature >= 0;
      const bool mine = feature >= first && feature < first + OWN_FEATURES;
      const u32 mask = __ballot_sync(EVERY_LANE, mine);
      if (mine) own[count + __popc(mask & ((1u << lane) - 1u))] = (u16)(feature - first);
      count += __popc(mask);
    }
    __syncwarp();
    return count;
  }

  // The sum of one head's weights over listed features, by a warp: HEAD_LANES heads of OWN_AT_ONCE features at once.
  __device__ __forceinline__ float sum_own(const u16* own, int count, int head, u32 clock, int lane) const {
    float sum = 0.0f;
    for (int j = lane / HEAD_LANES; j < count; j += OWN_AT_ONCE) sum += settled(head, own[j], clock);
#pragma unroll
    for (int bit = 16; bit >= HEAD_LANES; bit /= 2) sum += __shfl_xor_sync(EVERY_LANE, sum, bit);
    return sum;
  }

  __device__ __forceinline__ float settled(int head, int own, u32 clock) const {
    float& w = shared.base[head][own];
    u32& touched = shared.base_touched[head][own];
    const u32 gap = clock - touched;
    if (gap > 0) {
      float& m = shared.base_momentum[head][own];
      const Decay d = decay_over(shared.decay, nu, gap);
      w -= alpha * d.sum * m;
      m *= d.power;
      touched = clock;
    }
    return w;
  }

  __device__ __forceinline__ void learn(int head, int own, float error, u32 clock) const {
    float& m = shared.base_momentum[head][own];
    m = nu * m - (1.0f - nu) * error;
    shared.base[head][own] -= alpha * m;
    shared.base_touched[head][own] = clock;
  }
};

__device__ void main_warps(Shared& shared, const State& state, const Environment& env, const Scalars& scalars, int run,
                           int part, Scalars* scalars_out, u64* mail, double* bins, u32 num_bins, u32 bin_size) {
  const int rank = threadIdx.x - 32 * ALL_QUESTION_WARPS, lane = rank % 32, warp = rank / 32;
  auto sync = [] { group_sync<MAIN_THREADS>(MAIN_BARRIER); };
  const BaseFeatures base = {shared, scalars.alpha_main, scalars.nu, part * OWN_FEATURES};
  for (int k = rank; k < HEADS * OWN_FEATURES; k += MAIN_THREADS) {
    const int head = k / OWN_FEATURES, own = k % OWN_FEATURES, feature = base.first + own;
    const bool real = feature < FEATURES;
    const size_t at = ((size_t)run * HEADS + head) * FEATURES + feature;
    shared.base[head][own] = real ? state.base[at] : 0.0f;
    shared.base_momentum[head][own] = real ? state.base_momentum[at] : 0.0f;
    shared.base_touched[head][own] = real ? state.base_touched[at] : 0u;
  }
  u32 action_counts[ACTIONS];
#pragma unroll
  for (int a = 0; a < ACTIONS; ++a) action_counts[a] = (u32)state.action_counts[(size_t)run * ACTIONS + a];

  const u32 num_steps = num_bins * bin_size;
  const int head = lane % HEAD_LANES;  // of the base features
  int count_t = 0, count_own = 0;      // own features in x_t; in the x_t that is being learned from
  u32 seen_t = 0;                      // active features in x_t
  u64 active_features = 0;
  double bin_sum = 0.0, error_sum = state.main_error[run];
  u32 bin = 0, in_bin = 0;
  int action = scalars.action;

  // what can be drawn before the action is known: the exploring action, and the words of the transitions
  const bool has_base = warp == 0, has_boards = MAIN_WARPS == 1 || warp > 0;
  const int board_rank = MAIN_WARPS == 1 ? rank : rank - 32;
  int exploring;
  Transitions<BOARD_THREADS> transitions;
  auto draw_ahead = [&](u64 step) {
    exploring = exploring_action(scalars.seed, step, scalars.epsilon_threshold);
    if (has_boards) transitions.draw_words(scalars.seed, step, board_rank);
  };
  draw_ahead(scalars.step + 1);

  // x_t, and the transition to x_{t+1} under a_t
  auto list_present = [&](int turn) {
    for (int slot = rank; slot < SLOTS; slot += MAIN_THREADS)
      if (shared.active[turn][slot] >= 0) shared.present[turn].add(shared.active[turn][slot]);
  };
  shared.present[0].clear(rank, MAIN_THREADS);
  shared.present[1].clear(rank, MAIN_THREADS);
  double my_reward =
      first_step<MAIN_THREADS>(env, shared.boards, state.states + (size_t)run * BOARDS, scalars.seed, scalars.step, action,
                               shared.active[0], shared.active[1], rank);
  if (rank == 0) shared.control[0].action = action;
  sync();
  list_present(0);
  list_present(1);
  if (has_base) {
    count_t = base.list_own(shared.active[0], shared.own_active[0], lane, seen_t);
  }
  group_sync<THREADS>(0);
  for (u32 i = 0; i < num_steps; ++i) {
    const u32 step = (u32)scalars.step + i;
    Control& control = shared.control[i & 1];
    const Slot* active_next = shared.active[(i + 1) % 3];

    // forward: base features
    u32 count_taken = 0;
#pragma unroll
    for (int a = 0; a < ACTIONS; ++a) count_taken = a == action ? action_counts[a] : count_taken;
    if (has_base) {
      u16* const own_next = shared.own_active[(i + 1) & 1];
      active_features += seen_t;
      const int count_next = base.list_own(active_next, own_next, lane, seen_t);
      u32 clock = step;  // of this lane's head
#pragma unroll
      for (int a = 0; a < ACTIONS; ++a) clock = head == 1 + a ? action_counts[a] : clock;
      const bool learns = head == 0 || head == 1 + action;
      const float value_t = base.sum_own(shared.own_active[i & 1], learns ? count_t : 0, head, clock, lane);
      __syncwarp();  // a feature may be in both lists, at different lanes
      const float value_next = base.sum_own(own_next, head < HEADS ? count_next : 0, head, clock, lane);
      if (lane == 0) shared.base_sums[MAIN_V_T] = value_t, shared.base_sums[MAIN_V_NEXT] = value_next;
      if (lane == 1 + action) shared.base_sums[MAIN_Q_T] = value_t;
      if (lane >= 1 && lane < HEADS) shared.base_sums[MAIN_Q_NEXT + lane - 1] = value_next;
      count_own = count_t, count_t = count_next;
    }
    // forward: what would follow each action
    if (has_boards) transitions.foresee(env, shared.boards, shared.foreseen, board_rank);
    const bool rewarded = __any_sync(EVERY_LANE, my_reward != 0.0);
    const double warp_reward = rewarded ? warp_sum(my_reward) : 0.0;
    if (lane == 0) shared.rewards[warp] = warp_reward;
    barrier_1();

    // the meeting
    const double reward = summed_reward(shared);
    bin_sum += reward;
    const u32 tag = step + 1u;
    u64* box = mail + (size_t)((run * 2 + (i & 1)) * LETTERS) * BLOCKS;
    if (rank < LETTERS) {
      u32 letter = part == DISCOVERY_PART ? shared.cumulant_change[i & 1] : 0u;
      if (rank < NUM_MAIN) {
        float sum = shared.base_sums[rank];
#pragma unroll
        for (int w = 0; w < ALL_QUESTION_WARPS; ++w) sum += shared.sums[i & 1][w][MAIN_SUMS + rank];
        letter = __float_as_uint(sum);
      }
      if (BLOCKS == 1) {
        shared.letters[rank * LETTER_STRIDE] = letter;
      } else {
        post(box + rank * BLOCKS + part, letter, tag);
      }
    }
    const int explored = exploring;
    draw_ahead((u64)step + 2);
    shared.present[(i + 2) % 3].clear(rank, MAIN_THREADS);
    if (BLOCKS == 1) {
      sync();
    } else {
      await_letters<LETTERS, MAIN_THREADS, LETTER_STRIDE>(box, tag, shared.letters, rank, MAIN_BARRIER);
    }
    const float my_total = letter_sum<LANES_PER_LETTER>(shared.letters, min(lane / LANES_PER_LETTER, NUM_MAIN - 1), lane);
    float totals[NUM_MAIN];
#pragma unroll
    for (int k = 0; k < NUM_MAIN; ++k) totals[k] = __shfl_sync(EVERY_LANE, my_total, k * LANES_PER_LETTER);
    const u32 cumulant_change = shared.letters[NUM_MAIN * LETTER_STRIDE + DISCOVERY_PART];
    const float target = (float)reward + scalars.gamma * totals[MAIN_V_NEXT];
    const float error_v = target - totals[MAIN_V_T], error_q = target - totals[MAIN_Q_T];
    int next_action = 0;
    float best = totals[MAIN_Q_NEXT];
#pragma unroll
    for (int a = 1; a < ACTIONS; ++a) {
      const float value = totals[MAIN_Q_NEXT + a];
      if (value > best) best = value, next_action = a;
    }
    if (explored >= 0) next_action = explored;

    // the environment's step t + 1 -> t + 2: of what could follow, what does
    if (i + 1 < num_steps) {
      my_reward = take_foreseen<MAIN_THREADS>(shared.foreseen, next_action, shared.boards, rank);
      for (int slot = rank; slot < SLOTS; slot += MAIN_THREADS) {
        const Slot feature = shared.foreseen.active[next_action][slot];
        shared.active[(i + 2) % 3][slot] = feature;
        if (feature >= 0) shared.present[(i + 2) % 3].add(feature);
      }
    }
    if (rank == 0) {
      control.error_v = error_v;
      control.error_q = error_q;
      control.cumulant_change = cumulant_change;
      shared.control[(i + 1) & 1].action = next_action;
    }
    barrier_2();

    // Algorithm 2: update_main, base features
    if (has_base && (head == 0 || head == 1 + action)) {
      for (int j = lane / HEAD_LANES; j < count_own; j += OWN_AT_ONCE)
        base.learn(head, shared.own_active[i & 1][j], head == 0 ? error_v : error_q,
                   head == 0 ? step + 1u : count_taken + 1u);
    }
    __syncwarp();
#pragma unroll
    for (int a = 0; a < ACTIONS; ++a) action_counts[a] += a == action;
    action = next_action;
    error_sum += fabsf(error_v);
    if (++in_bin == bin_size) {
      if (part == 0 && rank == 0) bins[(size_t)run * num_bins + bin] = bin_sum;
      bin_sum = 0.0;
      in_bin = 0;
      ++bin;
    }
  }

  sync();  // the first warp has learned its last step
  for (int k = rank; k < HEADS * OWN_FEATURES; k += MAIN_THREADS) {
    const int head = k / OWN_FEATURES, own = k % OWN_FEATURES, feature = base.first + own;
    if (feature < FEATURES) {
      const size_t at = ((size_t)run * HEADS + head) * FEATURES + feature;
      state.base[at] = shared.base[head][own];
      state.base_momentum[at] = shared.base_momentum[head][own];
      state.base_touched[at] = shared.base_touched[head][own];
    }
  }
  if (part == 0) {
    for (int board = rank; board < BOARDS; board += MAIN_THREADS)
      state.states[(size_t)run * BOARDS + board] = shared.boards.states[board];
    atomicAdd(state.active_features + run, active_features);
    if (rank == 0) {
#pragma unroll
      for (int a = 0; a < ACTIONS; ++a) state.action_counts[(size_t)run * ACTIONS + a] = action_counts[a];
      state.main_error[run] = error_sum;
      scalars_out->action = action;
      scalars_out->step = scalars.step + num_steps;
    }
  }
}
