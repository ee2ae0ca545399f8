// Q-learning and QV-learning with one hidden layer over all bits, and their environment, as one persistent kernel.
//
// THREADS. A run has BLOCKS blocks that share its hidden units; a worker thread keeps UNITS units (their heads in
// registers: v, q_a, and the momentum of each). There are ROW_GROUPS groups of WORKER_WARPS warps with the same units and
// heads, who take turns with the rows of w_u: a row is one thread's for each unit in a step. MAIN_WARPS more warps keep
// the clock, hold the meeting of the blocks, choose the action and step the environment.
//
// ONE STEP, given x_t, a_t and x_{t+1}:
//   lists    everybody: which rows are active, and how far each lags behind.              [barrier]
//   forward  workers: hidden units of x_{t+1} (those of x_t are known), dot products.
//            meanwhile main: x_{t+2} for every action that A_{t+1} may be.                 [barrier]
//   meeting  main: sums over all units, the TD errors, A_{t+1}.                           [barrier]
//   learn    workers: heads and rows (Algorithm 3). main: hand out x_{t+2}.               [barrier]
//
// MEMORY. Rows of w_u and their momentum are in global memory; those that are active are in shared memory as far as
// they fit, behind the struct `Shared`. See rows.cuh.

constexpr int UNIT_THREADS = 32 * WORKER_WARPS, WORKERS = ROW_GROUPS * UNIT_THREADS;
constexpr int MAIN_THREADS = 32 * MAIN_WARPS;
constexpr int THREADS = WORKERS + MAIN_THREADS;
constexpr int MAIN_BARRIER = 1, WORKER_BARRIER = 2;
constexpr int ROWS = FEATURES + HIDDEN_BIAS;
constexpr int ENTRIES = round_up(SLOTS + HIDDEN_BIAS, BATCH);
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
  alignas(16) float parts[ROW_GROUPS][ROW_UNITS];  // of what enters the units, by groups
  float sums[WORKER_WARPS][PADDED_SUMS];
  u32 letters[NUM_SUMS * LETTER_STRIDE];
  double rewards[MAIN_WARPS];
  int action;  // a_t
  float error_v, error_q;
  Slot active[2][SLOTS];
  RowEntry entries[2][ENTRIES];
  Boards boards;
  Foreseen foreseen;  // x_{t+2} for every A_{t+1}
  u32 last[ROWS];
  u16 slot[ROWS];
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

// Enter the active features of x_t or x_{t+1}; every input has a row of its own. By all threads of the block.
template <bool FIRST>
__device__ __forceinline__ void list_active_rows(const Rows& rows, const RowClock& clock, const Slot* active,
                                                 RowEntry* entries) {
  for (int first = 0; first < ENTRIES; first += THREADS) {
    const int k = first + threadIdx.x;
    const int row = k < SLOTS ? active[k] : HIDDEN_BIAS && k == SLOTS ? ROWS - 1 : -1;
    const RowEntry entry = enter_row<FIRST>(rows, clock, row >= 0, (u32)row, threadIdx.x % 32);
    if (k < ENTRIES) entries[k] = entry;
  }
}

// What enters this thread's units: the sum of what the groups have written, after a barrier.
__device__ __forceinline__ Units sum_of_groups(const Shared& shared, const Units& mine, int unit) {
  if constexpr (ROW_GROUPS == 1) return mine;
  Units sum = zero_units();
#pragma unroll
  for (int g = 0; g < ROW_GROUPS; ++g) add_units(sum, load_units(&shared.parts[g][unit]));
  return sum;
}

__device__ void worker_warps(Shared& shared, const Rows& rows, const State& state, const Scalars& scalars, int run,
                             int part, u32 num_steps) {
  const int rank = threadIdx.x, lane = rank % 32, group = rows.group, unit = rank % UNIT_THREADS * UNITS;  // in this block
  const int first_unit = part * UNIT_THREADS * UNITS + unit;
  auto write_part = [&](const Units& mine) {
    if (ROW_GROUPS > 1) store_units(&shared.parts[group][unit], mine);
  };
  Units head_v = zero_units(), head_v_momentum = zero_units();
  if (STATE_VALUE) {
    head_v = load_units(state.head_v + (size_t)run * HIDDEN + first_unit);
    head_v_momentum = load_units(state.head_v_momentum + (size_t)run * HIDDEN + first_unit);
  }
  Units head_q[ACTIONS], head_q_momentum[ACTIONS];
#pragma unroll
  for (int a = 0; a < ACTIONS; ++a) {
    const size_t at = ((size_t)run * ACTIONS + a) * HIDDEN + first_unit;
    head_q[a] = load_units(state.head_q + at);
    head_q_momentum[a] = load_units(state.head_q_momentum + at);
  }
  if (group == 0) Row{zero_units(), zero_units()}.store(rows.in_slot(rows.pool_rows) + rows.offset);
  group_sync<THREADS>(0);  // x_t is listed
  Units z_t = settle_rows(rows, shared.entries[0], ENTRIES, lane);
  write_part(z_t);
  group_sync<THREADS>(0);

  for (u32 i = 0; i < num_steps; ++i) {
    const RowClock clock = {shared.decay, scalars.alpha_main, scalars.nu, (u32)scalars.step + i};
    RowEntry *entries_t = shared.entries[i & 1], *entries_next = shared.entries[(i + 1) & 1];
    list_active_rows<false>(rows, clock, shared.active[(i + 1) & 1], entries_next);
    z_t = sum_of_groups(shared, z_t, unit);
    group_sync<THREADS>(0);  // listed

    fetch_rows(rows, entries_next, ENTRIES, lane);
    await_copies();
    Units z_next = sum_rows(rows, entries_next, ENTRIES);
    if (ROW_GROUPS > 1) {
      write_part(z_next);
      group_sync<WORKERS>(WORKER_BARRIER);
      z_next = sum_of_groups(shared, z_next, unit);
    }
    Units phi_t, phi_next;
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      phi_t.x[u] = fmaxf(z_t.x[u], 0.0f);
      phi_next.x[u] = fmaxf(z_next.x[u], 0.0f);
    }
    const int action = shared.action;
    Units taken = head_q[0];
#pragma unroll
    for (int a = 1; a < ACTIONS; ++a)
      if (a == action) taken = head_q[a];
    if (group == 0) {
      float sums[PADDED_SUMS];
#pragma unroll
      for (int k = 0; k < PADDED_SUMS; ++k) sums[k] = 0.0f;
      sums[Q_T] = dot_units(taken, phi_t);
      if (STATE_VALUE) {
        sums[V_T] = dot_units(head_v, phi_t);
        sums[V_NEXT] = dot_units(head_v, phi_next);
      }
#pragma unroll
      for (int a = 0; a < ACTIONS; ++a) sums[Q_NEXT + a] = dot_units(head_q[a], phi_next);
      warp_sums(sums, lane);
      if (writes_sum<PADDED_SUMS>(lane)) shared.sums[rank / 32][owned_sum<PADDED_SUMS>(lane)] = sums[0];
    }
    group_sync_twice<THREADS>(0);  // summed
    group_sync<THREADS>(0);  // met

    // Algorithm 3 with the reward as cumulant
    const float error_v = shared.error_v, error_q = shared.error_q;
    Units gradient;
#pragma unroll
    for (int u = 0; u < UNITS; ++u)
      gradient.x[u] = z_t.x[u] > 0.0f ? -(error_v * head_v.x[u] + error_q * taken.x[u]) : 0.0f;
    if (STATE_VALUE) co_opt(head_v, head_v_momentum, phi_t, error_v, scalars.alpha_main, scalars.nu);
#pragma unroll
    for (int a = 0; a < ACTIONS; ++a)
      if (a == action) co_opt(head_q[a], head_q_momentum[a], phi_t, error_q, scalars.alpha_main, scalars.nu);
    z_t = update_rows(rows, clock, entries_t, ENTRIES, entries_next, ENTRIES, gradient, lane, rank < 32);
    write_part(z_t);
    group_sync<THREADS>(0);  // learned
  }

  write_back(rows, ROWS);
  if (group > 0) return;
  if (STATE_VALUE) {
    store_units(state.head_v + (size_t)run * HIDDEN + first_unit, head_v);
    store_units(state.head_v_momentum + (size_t)run * HIDDEN + first_unit, head_v_momentum);
  }
#pragma unroll
  for (int a = 0; a < ACTIONS; ++a) {
    const size_t at = ((size_t)run * ACTIONS + a) * HIDDEN + first_unit;
    store_units(state.head_q + at, head_q[a]);
    store_units(state.head_q_momentum + at, head_q_momentum[a]);
  }
}

__device__ void main_warps(Shared& shared, const Rows& rows, const State& state, const Environment& env,
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

  Transitions<MAIN_THREADS> transitions;
  transitions.draw_words(scalars.seed, scalars.step + 1, rank);
  group_sync<THREADS>(0);  // x_t is listed
  group_sync<THREADS>(0);

  for (u32 i = 0; i < num_steps; ++i) {
    const u32 step = (u32)scalars.step + i;
    const RowClock clock = {shared.decay, scalars.alpha_main, scalars.nu, step};
    list_active_rows<false>(rows, clock, shared.active[(i + 1) & 1], shared.entries[(i + 1) & 1]);
    if (part == 0)
      for (int k = rank; k < ENTRIES; k += MAIN_THREADS) active_rows += shared.entries[i & 1][k].row != NO_ROW;
    const double warp_reward = warp_sum(my_reward);
    if (lane == 0) shared.rewards[warp] = warp_reward;
    group_sync<THREADS>(0);  // listed

    double reward = 0.0;
#pragma unroll
    for (int w = 0; w < MAIN_WARPS; ++w) reward += shared.rewards[w];
    bin_sum += reward;
    transitions.foresee(env, shared.boards, shared.foreseen, rank);
    const int exploring = exploring_action(scalars.seed, (u64)step + 1, scalars.epsilon_threshold);
    group_sync_twice<THREADS>(0);  // summed

    const u32 tag = step + 1u;
    u64* box = mail + (size_t)((run * 2 + (i & 1)) * NUM_SUMS) * BLOCKS;
    if (rank < NUM_SUMS) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < WORKER_WARPS; ++w) sum += shared.sums[w][rank];
      if (BLOCKS == 1) {
        shared.letters[rank * LETTER_STRIDE] = __float_as_uint(sum);
      } else {
        post(box + rank * BLOCKS + part, __float_as_uint(sum), tag);
      }
    }
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
      my_reward = take_foreseen<MAIN_THREADS>(shared.foreseen, action, shared.boards, rank);
      for (int slot = rank; slot < SLOTS; slot += MAIN_THREADS)
        shared.active[i & 1][slot] = shared.foreseen.active[action][slot];
      transitions.draw_words(scalars.seed, (u64)step + 2, rank);
    }
    if (rank == 0) shared.action = action;
    error_sum += fabsf(STATE_VALUE ? error_v : error_q);
    if (++in_bin == bin_size) {
      if (part == 0 && rank == 0) bins[(size_t)run * num_bins + bin] = bin_sum;
      bin_sum = 0.0;
      in_bin = 0;
      ++bin;
    }
    group_sync<THREADS>(0);  // learned
  }

  if (part == 0) {
    for (int board = rank; board < BOARDS; board += MAIN_THREADS)
      state.states[(size_t)run * BOARDS + board] = shared.boards.states[board];
    atomicAdd(state.active_rows + run, active_rows);
    if (rank == 0) {
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

  const Rows rows = {reinterpret_cast<char*>(state.hidden + ((size_t)run * ROWS * BLOCKS + part) * 2 * ROW_UNITS),
                     reinterpret_cast<char*>(memory + SHARED_BYTES),
                     pool_rows,
                     threadIdx.x % UNIT_THREADS * (u32)sizeof(Units),
                     (int)threadIdx.x / UNIT_THREADS,
                     shared.slot,
                     shared.last,
                     shared.pool};
  empty_pool<THREADS>(rows, ROWS, threadIdx.x);
  for (int row = threadIdx.x; row < ROWS; row += THREADS) shared.last[row] = state.hidden_last[(size_t)run * ROWS + row];
  double my_reward = 0.0;
  if (threadIdx.x >= WORKERS)
    my_reward = first_step<MAIN_THREADS>(env, shared.boards, state.states + (size_t)run * BOARDS, scalars.seed, scalars.step,
                                         scalars.action, shared.active[0], shared.active[1], threadIdx.x - WORKERS);
  load_decay(shared.decay, state.decay + (size_t)run * (DECAY_LOW + DECAY_HIGH), threadIdx.x, THREADS);
  if (threadIdx.x == 0) shared.action = scalars.action;
  __syncthreads();
  list_active_rows<true>(rows, {shared.decay, scalars.alpha_main, scalars.nu, step}, shared.active[0], shared.entries[0]);
  if (threadIdx.x < WORKERS) {
    worker_warps(shared, rows, state, scalars, run, part, num_bins * bin_size);
  } else {
    main_warps(shared, rows, state, env, scalars, my_reward, run, part, all_scalars + run, mail, bins, num_bins, bin_size);
  }
  __syncthreads();
  const u32 end = step + num_bins * bin_size;
  if (part == 0) {
    for (int row = threadIdx.x; row < ROWS; row += THREADS) {
      const u32 last = shared.last[row];
      state.hidden_last[(size_t)run * ROWS + row] = last == end ? end - 1u : last;  // touched = last + 1 for every row
    }
  }
}
