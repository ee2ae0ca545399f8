// The main warps: they keep the clock, learn the base features of the main learner (update_main, Algorithm 2), hold the
// meeting of the blocks, choose the action (Algorithm 1, lines 6 to 8) and step the environment.

struct BaseFeatures {  // the block's own base features of the main learner (Algorithm 2), decayed lazily
  Shared& shared;
  float alpha, nu;
  int first;  // own features are first .. first + OWN_FEATURES - 1

  __device__ __forceinline__ bool owns(int feature) const {
    return feature >= first && feature < first + OWN_FEATURES;
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
  u64 active_features = 0;
  double bin_sum = 0.0, error_sum = 0.0;
  u32 bin = 0, in_bin = 0;
  int action = scalars.action;

  // x_t, and the transition to x_{t+1} under a_t
  double my_reward = 0.0;
  for (int board = rank; board < BOARDS; board += MAIN_THREADS) {
    const int row_base = env.row_base[board], observed_base = env.observed_base[board];
    int s = state.states[(size_t)run * BOARDS + board];
    observe_board(env, board, observed_base, s, shared.active[0]);
    const uint4 words = draw(scalars.seed, STREAM_TRANSITION, scalars.step, board / 4);
    my_reward += step_board(env, row_base, s, action, lane_of(words, board % 4));
    observe_board(env, board, observed_base, s, shared.active[1]);
    shared.states[board] = s;
    shared.row_base[board] = row_base;
    shared.observed_base[board] = observed_base;
  }
  if (rank == 0) shared.control[0].action = action;
  group_sync<THREADS>(0);
  for (u32 i = 0; i < num_steps; ++i) {
    const u32 step = (u32)scalars.step + i;
    Control& control = shared.control[i & 1];
    const int *active_t = shared.active[i % 3], *active_next = shared.active[(i + 1) % 3];

    // forward: base features
    float sums[NUM_BASE_SUMS];
#pragma unroll
    for (int k = 0; k < NUM_BASE_SUMS; ++k) sums[k] = 0.0f;
    u32 count_taken = 0;
#pragma unroll
    for (int a = 0; a < ACTIONS; ++a) count_taken = a == action ? action_counts[a] : count_taken;
    for (int slot = rank; slot < SLOTS; slot += MAIN_THREADS) {
      const int feature = active_t[slot];
      active_features += feature >= 0;
      if (feature >= 0 && base.owns(feature)) {
        sums[MAIN_V_T] += base.settled(0, feature - base.first, step);
        sums[MAIN_Q_T] += base.settled(1 + action, feature - base.first, count_taken);
      }
    }
    sync();  // a feature may be in both lists, at different threads
    for (int slot = rank; slot < SLOTS; slot += MAIN_THREADS) {
      const int feature = active_next[slot];
      if (feature >= 0 && base.owns(feature)) {
        sums[MAIN_V_NEXT] += base.settled(0, feature - base.first, step);
#pragma unroll
        for (int a = 0; a < ACTIONS; ++a)
          sums[MAIN_Q_NEXT + a] += base.settled(1 + a, feature - base.first, action_counts[a]);
      }
    }
    warp_sums(sums, lane);
    if (writes_sum<NUM_BASE_SUMS>(lane)) shared.base_sums[warp][owned_sum<NUM_BASE_SUMS>(lane)] = sums[0];
    const double warp_reward = warp_sum(my_reward);
    if (lane == 0) shared.rewards[warp] = warp_reward;
    sync();
    double reward = 0.0;
#pragma unroll
    for (int w = 0; w < MAIN_WARPS; ++w) reward += shared.rewards[w];
    if (rank == 0) control.reward = (float)reward;
    bin_sum += reward;
    // what can be drawn before the action is known
    const int exploring = exploring_action(scalars.seed, (u64)step + 1, scalars.epsilon_threshold);
    for (int k = rank; k < ACTIONS * BOARDS; k += MAIN_THREADS) {
      const int a = k / BOARDS, board = k % BOARDS;
      int s = shared.states[board];
      const u32 word = lane_of(draw(scalars.seed, STREAM_TRANSITION, (u64)step + 1, board / 4), board % 4);
      shared.possible_rewards[a][board] = step_board(env, shared.row_base[board], s, a, word);
      shared.possible_states[a][board] = s;
      observe_board(env, board, shared.observed_base[board], s, shared.possible_active[a]);
    }
    group_sync<THREADS>(0);  // barrier 1

    // the meeting
    const u32 tag = step + 1u;
    u64* box = mail + (size_t)((run * 2 + (i & 1)) * LETTERS) * BLOCKS;
    if (rank < LETTERS) {
      u32 letter = part == 0 ? shared.cumulant_change[i & 1] : 0u;
      if (rank < NUM_MAIN) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < MAIN_WARPS; ++w) sum += shared.base_sums[w][rank];
#pragma unroll
        for (int w = 0; w < ALL_QUESTION_WARPS; ++w) sum += shared.sums[w][MAIN_SUMS + rank];
        letter = __float_as_uint(sum);
      }
      if (BLOCKS == 1) {
        shared.letters[rank] = letter;
      } else {
        post(box + rank * BLOCKS + part, letter, tag);
      }
    }
    if (BLOCKS == 1) {
      sync();
    } else {
      await_letters<LETTERS, MAIN_THREADS>(box, tag, shared.letters, rank, MAIN_BARRIER);
    }
    const float my_total = letter_sum<LANES_PER_LETTER>(shared.letters, min(lane / LANES_PER_LETTER, NUM_MAIN - 1), lane);
    float totals[NUM_MAIN];
#pragma unroll
    for (int k = 0; k < NUM_MAIN; ++k) totals[k] = __shfl_sync(EVERY_LANE, my_total, k * LANES_PER_LETTER);
    const u32 cumulant_change = shared.letters[NUM_MAIN * BLOCKS];
    const float target = (float)reward + scalars.gamma * totals[MAIN_V_NEXT];
    const float error_v = target - totals[MAIN_V_T], error_q = target - totals[MAIN_Q_T];
    int next_action = 0;
    float best = totals[MAIN_Q_NEXT];
#pragma unroll
    for (int a = 1; a < ACTIONS; ++a) {
      const float value = totals[MAIN_Q_NEXT + a];
      if (value > best) best = value, next_action = a;
    }
    if (exploring >= 0) next_action = exploring;

    // the environment's step t + 1 -> t + 2: of what could follow, what does
    if (i + 1 < num_steps) {
      my_reward = 0.0;
      for (int board = rank; board < BOARDS; board += MAIN_THREADS) {
        my_reward += shared.possible_rewards[next_action][board];
        shared.states[board] = shared.possible_states[next_action][board];
      }
      for (int slot = rank; slot < SLOTS; slot += MAIN_THREADS)
        shared.active[(i + 2) % 3][slot] = shared.possible_active[next_action][slot];
    }
    if (rank == 0) {
      control.error_v = error_v;
      control.error_q = error_q;
      control.cumulant_change = cumulant_change;
      shared.control[(i + 1) & 1].action = next_action;
    }
    group_sync<THREADS>(0);  // barrier 2

    // Algorithm 2: update_main, base features
    for (int slot = rank; slot < SLOTS; slot += MAIN_THREADS) {
      const int feature = active_t[slot];
      if (feature >= 0 && base.owns(feature)) {
        base.learn(0, feature - base.first, error_v, step + 1u);
        base.learn(1 + action, feature - base.first, error_q, count_taken + 1u);
      }
    }
    sync();
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
      state.states[(size_t)run * BOARDS + board] = shared.states[board];
    atomicAdd(state.active_features + run, active_features);
    if (rank == 0) {
#pragma unroll
      for (int a = 0; a < ACTIONS; ++a) state.action_counts[(size_t)run * ACTIONS + a] = action_counts[a];
      state.main_error[run] += error_sum;
      scalars_out->action = action;
      scalars_out->step = scalars.step + num_steps;
    }
  }
}
