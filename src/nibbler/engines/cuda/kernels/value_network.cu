// Q-learning and QV-learning with one hidden layer over all bits, and their environment, as one persistent kernel.
//
// THREADS. A run has BLOCKS blocks that share its hidden units; a worker thread keeps four of them, and there are ROW_GROUPS
// groups of threads with the same units, who share the rows of w_u. MAIN_WARPS more warps keep the clock, list the active
// rows, hold the meeting of the blocks, choose the action and step the environment.
//
// ONE STEP, given x_t, a_t and the list of rows of x_{t+1}:                                 [barrier: listed]
//   forward  workers: what enters the hidden units for x_t and x_{t+1}, dot products; on the way the rows of x_t get what
//            they learned from the step before. main: x_{t+2} for every action that A_{t+1} may be. [barrier: summed]
//   meeting  main: sums over all units, the TD errors, A_{t+1}.                              [barrier: met]
//   learn    workers: heads, and rows that x_{t+1} leaves out (Algorithm 3). main: the list of x_{t+2}.
//
// MEMORY. Rows of w_u and their momentum are in global memory; those that are active are in shared memory as far as
// they fit, behind the struct `Shared`. See network_rows.cuh.

constexpr int UNIT_THREADS = ROW_UNITS / UNITS, WORKERS = ROW_GROUPS * UNIT_THREADS, THREADS = WORKERS + MAIN_THREADS;
constexpr int SUM_WARPS = divide_up(2 * UNIT_THREADS, 32);  // of the two groups that take dot products
constexpr int MAIN_BARRIER = 1, WORKER_BARRIER = 2;
static_assert(WORKERS % 32 == 0 && ROW_GROUPS >= 2, "workers are whole warps of two groups or more");
enum { Q_T, V_T, V_NEXT, Q_NEXT };  // + action; sums over units
constexpr int NUM_SUMS = Q_NEXT + ACTIONS;
constexpr int PADDED_SUMS = power_of_two_from(NUM_SUMS);
constexpr int LANES_PER_LETTER = 32 / PADDED_SUMS, LETTER_STRIDE = letter_stride(LANES_PER_LETTER);

struct State {  // device arrays with a leading axis over runs; units are padded to HIDDEN
  float* hidden;                            // [ROWS][BLOCKS][2][HIDDEN / BLOCKS] weights, momentum
  u32* hidden_last;                         // [ROWS]
  float *head_v, *head_v_momentum;          // [HIDDEN], only if STATE_VALUE
  float *head_q, *head_q_momentum;          // [ACTIONS][HIDDEN]
  int* states;                              // [BOARDS]
  u64* action_counts;                       // [ACTIONS]
  u64* active_rows;                         // [1] sum over steps
  double* value_error;                      // [1]
  Decay* decay;                             // [DECAY_LOW + DECAY_HIGH]
};

struct Shared {
  RowList lists[3];  // of x_t, x_{t+1} and x_{t+2} in turn
  alignas(16) float parts[2][ROW_GROUPS][ROW_UNITS];  // of what enters the units for x_t and x_{t+1}, by groups
  float z_t[ROW_UNITS];                               // the sum for x_t
  float head_v[STATE_VALUE ? ROW_UNITS : 4], head_v_momentum[STATE_VALUE ? ROW_UNITS : 4];
  float head_q[ACTIONS][ROW_UNITS], head_q_momentum[ACTIONS][ROW_UNITS];
  Newcomers newcomers;  // of x_{t+1}
  Leavers leavers;      // of x_t
  float sums[SUM_WARPS][PADDED_SUMS];
  u32 letters[NUM_SUMS * LETTER_STRIDE];
  double rewards[MAIN_WARPS];
  int action;  // a_t
  float error_v, error_q;
  Slot first[2][SLOTS];  // x_t and x_{t+1} at the start of a launch
  Boards boards;
  Foreseen foreseen;  // x_{t+2} for every A_{t+1}
  u32 last[ROWS];
  u16 position[ROWS];
  RowPool pool;
  DecayTable decay;
};

constexpr int SHARED_BYTES = round_up(sizeof(Shared), 16);

// What the host must agree with: bytes of shared memory without the pool of rows, of one row in it, of what else may
// lie there; bytes of the table of arrays, of a run's scalars; threads of a block.
extern "C" __global__ void sizes(int* out) {
  out[0] = SHARED_BYTES, out[1] = (int)ROW_BYTES, out[2] = 0;
  out[3] = (int)sizeof(State), out[4] = (int)sizeof(Scalars), out[5] = THREADS;
}

// A block's share of the heads, from global to shared memory or back; by `count` threads, thread `rank`.
template <bool BACK>
__device__ __forceinline__ void move_heads(Shared& shared, const State& state, int run, int part, int rank, int count) {
  const auto move = [&](float* here, float* there) {
    for (int unit = rank; unit < ROW_UNITS; unit += count) {
      float* const far = there + part * ROW_UNITS + unit;
      *(BACK ? far : here + unit) = *(BACK ? here + unit : far);
    }
  };
  if (STATE_VALUE) {
    move(shared.head_v, state.head_v + (size_t)run * HIDDEN);
    move(shared.head_v_momentum, state.head_v_momentum + (size_t)run * HIDDEN);
  }
  for (int a = 0; a < ACTIONS; ++a) {
    move(shared.head_q[a], state.head_q + ((size_t)run * ACTIONS + a) * HIDDEN);
    move(shared.head_q_momentum[a], state.head_q_momentum + ((size_t)run * ACTIONS + a) * HIDDEN);
  }
}

// The forward pass of this thread's group, with or without rows that are in global memory.
template <bool SOME_FAR>
__device__ __forceinline__ void forward(const NetworkRows& rows, const RowList& now, const Newcomers& newcomers,
                                        const Units& learned, float alpha, Units& z_t, Units& z_next) {
  pass_over<SOME_FAR>(rows, now, learned, alpha, z_t, z_next);
  await_copies();
  add_newcomers<SOME_FAR>(rows, newcomers, z_next);
}

__device__ __forceinline__ Units relu(Units z) {
#pragma unroll
  for (int u = 0; u < UNITS; ++u) z.x[u] = fmaxf(z.x[u], 0.0f);
  return z;
}

// Dot products of the hidden units with the heads, summed over a warp: group 0 has those of x_t, group 1 those of x_{t+1}.
// After a barrier behind the groups' parts.
__device__ __forceinline__ void sum_dots(Shared& shared, int group, int unit, int rank) {
  float sums[PADDED_SUMS];
#pragma unroll
  for (int k = 0; k < PADDED_SUMS; ++k) sums[k] = 0.0f;
  if (group < 2) {
    Units z = load_units(&shared.parts[group][0][unit]);
#pragma unroll
    for (int g = 1; g < ROW_GROUPS; ++g) add_units(z, load_units(&shared.parts[group][g][unit]));
    const Units phi = relu(z);
    if (group == 0) {
      store_units(&shared.z_t[unit], z);
      sums[Q_T] = dot_units(load_units(&shared.head_q[shared.action][unit]), phi);
      if (STATE_VALUE) sums[V_T] = dot_units(load_units(&shared.head_v[unit]), phi);
    } else {
      if (STATE_VALUE) sums[V_NEXT] = dot_units(load_units(&shared.head_v[unit]), phi);
#pragma unroll
      for (int a = 0; a < ACTIONS; ++a) sums[Q_NEXT + a] = dot_units(load_units(&shared.head_q[a][unit]), phi);
    }
  }
  const int lane = rank % 32;
  warp_sums(sums, lane);
  if (writes_sum<PADDED_SUMS>(lane)) shared.sums[rank / 32][owned_sum<PADDED_SUMS>(lane)] = sums[0];
}

// co_opt for a head in shared memory.
__device__ __forceinline__ void learn_head(float* head, float* head_momentum, const Units& phi, float error, float alpha,
                                           float nu) {
  Units w = load_units(head), momentum = load_units(head_momentum);
  co_opt(w, momentum, phi, error, alpha, nu);
  store_units(head, w);
  store_units(head_momentum, momentum);
}

__device__ void worker_warps(Shared& shared, const NetworkRows& rows, const Scalars& scalars, u32 num_steps) {
  const int rank = threadIdx.x, group = rows.group, unit = rank % UNIT_THREADS * UNITS;  // in this block
  const float alpha = scalars.alpha_main, nu = scalars.nu;
  if (group == 0) Row{zero_units(), zero_units()}.store(rows.at<false>(rows.zeros()));
  Units learned = zero_units();  // from the step before: (1 - nu) times the gradient of what enters the units
  group_sync<THREADS>(0);  // x_t is listed
  fetch_newcomers(rows, shared.newcomers);
  await_copies();
  group_sync<THREADS>(0);  // and here

  for (u32 i = 0; i < num_steps; ++i) {
    const RowList &now = shared.lists[i % 3], &next = shared.lists[(i + 1) % 3];
    group_sync<THREADS>(0);  // listed

    fetch_newcomers(rows, shared.newcomers);
    Units z_t = zero_units(), z_next = zero_units();
    if (now.some_far || next.some_far) {
      forward<true>(rows, now, shared.newcomers, learned, alpha, z_t, z_next);
    } else {
      forward<false>(rows, now, shared.newcomers, learned, alpha, z_t, z_next);
    }
    store_units(&shared.parts[0][group][unit], z_t);
    store_units(&shared.parts[1][group][unit], z_next);
    group_sync<WORKERS>(WORKER_BARRIER);
    if (rank < 32 * SUM_WARPS) sum_dots(shared, group, unit, rank);
    group_sync_twice<THREADS>(0);  // summed
    z_t = load_units(&shared.z_t[unit]);
    const int action = shared.action;
    const Units taken = load_units(&shared.head_q[action][unit]);
    const Units head_v = STATE_VALUE ? load_units(&shared.head_v[unit]) : zero_units();
    group_sync<THREADS>(0);  // met

    // Algorithm 3 with the reward as cumulant
    const float error_v = shared.error_v, error_q = shared.error_q;
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      const float gradient = z_t.x[u] > 0.0f ? -(error_v * head_v.x[u] + error_q * taken.x[u]) : 0.0f;
      learned.x[u] = (1.0f - nu) * gradient;
    }
    if (now.some_far) {
      release_rows<true>(rows, shared.leavers, learned, alpha, nu);
    } else {
      release_rows<false>(rows, shared.leavers, learned, alpha, nu);
    }
    if (group == ROW_GROUPS - 1) {
      const Units phi_t = relu(z_t);
      if (STATE_VALUE) learn_head(&shared.head_v[unit], &shared.head_v_momentum[unit], phi_t, error_v, alpha, nu);
      learn_head(&shared.head_q[action][unit], &shared.head_q_momentum[action][unit], phi_t, error_q, alpha, nu);
    }
  }
  settle_rows(rows, shared.lists[num_steps % 3], learned, alpha);
}

__device__ void main_warps(Shared& shared, const NetworkRows& rows, const State& state, const Environment& env,
                           const Scalars& scalars, double my_reward, int run, int part, Scalars* scalars_out, u64* mail,
                           double* bins, u32 num_bins, u32 bin_size) {
  const int rank = threadIdx.x - WORKERS, lane = rank % 32, warp = rank / 32;
  auto sync = [] { group_sync<MAIN_THREADS>(MAIN_BARRIER); };
  u64 action_counts[ACTIONS];
#pragma unroll
  for (int a = 0; a < ACTIONS; ++a) action_counts[a] = state.action_counts[(size_t)run * ACTIONS + a];
  const u32 num_steps = num_bins * bin_size;
  u64 active_rows = 0;
  double bin_sum = 0.0, error_sum = state.value_error[run];
  u32 bin = 0, in_bin = 0;
  int action = scalars.action;
  const u32 begin = (u32)scalars.step;
  RowClock clock = {shared.decay, scalars.alpha_main, scalars.nu, begin};

  Transitions<MAIN_THREADS> transitions;
  transitions.draw_words(scalars.seed, scalars.step + 1, rank);
  list_rows<true>(rows, clock, shared.first[0], shared.lists[0], shared.lists[0], shared.newcomers, rank, MAIN_BARRIER);
  group_sync<THREADS>(0);  // x_t is listed
  group_sync<THREADS>(0);  // and here
  list_rows<false>(rows, clock, shared.first[1], shared.lists[0], shared.lists[1], shared.newcomers, rank, MAIN_BARRIER);

  for (u32 i = 0; i < num_steps; ++i) {
    const u32 step = begin + i;
    RowList &now = shared.lists[i % 3], &next = shared.lists[(i + 1) % 3], &after = shared.lists[(i + 2) % 3];
    group_sync<THREADS>(0);  // listed

    transitions.foresee(env, shared.boards, shared.foreseen, rank);
    const int exploring = exploring_action(scalars.seed, (u64)step + 1, scalars.epsilon_threshold);
    const double warp_reward = warp_sum(my_reward);
    if (lane == 0) shared.rewards[warp] = warp_reward;
    if (warp == 0) list_leavers(rows, now, shared.leavers, lane);
    if (rank == 0) {
      active_rows += now.count;
      after.some_far = false;
    }
    group_sync_twice<THREADS>(0);  // summed

    const u32 tag = step + 1u;
    u64* box = mail + (size_t)((run * 2 + (i & 1)) * NUM_SUMS) * BLOCKS;
    if (rank < NUM_SUMS) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < SUM_WARPS; ++w) sum += shared.sums[w][rank];
      if (BLOCKS == 1) {
        shared.letters[rank * LETTER_STRIDE] = __float_as_uint(sum);
      } else {
        post(box + rank * BLOCKS + part, __float_as_uint(sum), tag);
      }
    }
    transitions.draw_words(scalars.seed, (u64)step + 2, rank);
    double reward = 0.0;
#pragma unroll
    for (int w = 0; w < MAIN_WARPS; ++w) reward += shared.rewards[w];
    bin_sum += reward;
    if (BLOCKS == 1) {
      sync();
    } else {
      await_letters<NUM_SUMS, MAIN_THREADS, LETTER_STRIDE>(box, tag, shared.letters, rank, MAIN_BARRIER);
    }
    const float my_total = letter_sum<LANES_PER_LETTER>(shared.letters, min(lane / LANES_PER_LETTER, NUM_SUMS - 1), lane);
    float totals[NUM_SUMS];
#pragma unroll
    for (int k = 0; k < NUM_SUMS; ++k) totals[k] = __shfl_sync(EVERY_LANE, my_total, k * LANES_PER_LETTER);
    int greedy = 0;
    float best = totals[Q_NEXT];
#pragma unroll
    for (int a = 1; a < ACTIONS; ++a) {
      const float value = totals[Q_NEXT + a];
      if (value > best) best = value, greedy = a;
    }
    const float target = (float)reward + scalars.gamma * (STATE_VALUE ? totals[V_NEXT] : best);
    const float error_v = STATE_VALUE ? target - totals[V_T] : 0.0f;
    const float error_q = target - totals[Q_T];
    if (rank == 0) {
      shared.error_v = error_v;
      shared.error_q = error_q;
    }
    group_sync<THREADS>(0);  // met

#pragma unroll
    for (int a = 0; a < ACTIONS; ++a) action_counts[a] += a == action;
    action = exploring >= 0 ? exploring : greedy;
    if (i + 1 < num_steps) {
      clock.step = step + 1u;
      list_rows<false>(rows, clock, shared.foreseen.active[action], next, after, shared.newcomers, rank, MAIN_BARRIER);
      my_reward = take_foreseen<MAIN_THREADS>(shared.foreseen, action, shared.boards, rank);
    }
    if (rank == 0) shared.action = action;
    error_sum += fabsf(STATE_VALUE ? error_v : error_q);
    if (++in_bin == bin_size) {
      if (part == 0 && rank == 0) bins[(size_t)run * num_bins + bin] = bin_sum;
      bin_sum = 0.0;
      in_bin = 0;
      ++bin;
    }
  }

  if (part == 0) {
    for (int board = rank; board < BOARDS; board += MAIN_THREADS)
      state.states[(size_t)run * BOARDS + board] = shared.boards.states[board];
    if (rank == 0) {
      state.active_rows[run] += active_rows;
#pragma unroll
      for (int a = 0; a < ACTIONS; ++a) state.action_counts[(size_t)run * ACTIONS + a] = action_counts[a];
      state.value_error[run] = error_sum;
      scalars_out->action = action;
      scalars_out->step = scalars.step + num_steps;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    value_network_steps(const State* state_pointer, const Environment* environments, Scalars* all_scalars, u64* mail,
                        double* bins, u32 first_run, u32 num_bins, u32 bin_size, u32 pool_rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const State state = *state_pointer;
  const int run = first_run + blockIdx.x / BLOCKS, part = blockIdx.x % BLOCKS;
  const Scalars scalars = all_scalars[run];
  const Environment env = environments[scalars.environment];
  const u32 step = (u32)scalars.step;

  const NetworkRows rows = {
      reinterpret_cast<char*>(state.hidden + ((size_t)run * ROWS * BLOCKS + part) * 2 * ROW_UNITS),
      reinterpret_cast<char*>(memory + SHARED_BYTES),
      pool_rows,
      threadIdx.x % UNIT_THREADS * (u32)sizeof(Units),
      (int)threadIdx.x / UNIT_THREADS,
      shared.position,
      shared.last,
      shared.pool};
  fill_pool<THREADS>(shared.pool, pool_rows, threadIdx.x);
  for (int row = threadIdx.x; row < ROWS; row += THREADS) shared.last[row] = state.hidden_last[(size_t)run * ROWS + row];
  double my_reward = 0.0;
  if (threadIdx.x >= WORKERS)
    my_reward = first_step<MAIN_THREADS>(env, shared.boards, state.states + (size_t)run * BOARDS, scalars.seed, scalars.step,
                                         scalars.action, shared.first[0], shared.first[1], threadIdx.x - WORKERS);
  move_heads<false>(shared, state, run, part, threadIdx.x, THREADS);
  load_decay(shared.decay, state.decay + (size_t)run * (DECAY_LOW + DECAY_HIGH), threadIdx.x, THREADS);
  if (threadIdx.x < 3) shared.lists[threadIdx.x].some_far = false;
  if (threadIdx.x == 0) shared.action = scalars.action;
  __syncthreads();
  if (threadIdx.x < WORKERS) {
    worker_warps(shared, rows, scalars, num_bins * bin_size);
  } else {
    main_warps(shared, rows, state, env, scalars, my_reward, run, part, all_scalars + run, mail, bins, num_bins, bin_size);
  }
  __syncthreads();
  move_heads<true>(shared, state, run, part, threadIdx.x, THREADS);
  const u32 end = step + num_bins * bin_size;
  if (part == 0) {
    for (int row = threadIdx.x; row < ROWS; row += THREADS) {
      const u32 last = shared.last[row];
      state.hidden_last[(size_t)run * ROWS + row] = last == end ? end - 1u : last;  // touched = last + 1 for every row
    }
  }
}
