// The questions' warps: update_answers (Algorithm 3), select_inputs (Algorithm 4), and their part of update_main.

struct Question {  // what a thread of a question's group knows
  QuestionShared& shared;
  const Rows& rows;
  int rank, lane, warp, barrier;
};

__device__ __forceinline__ void question_sync(const Question& q) { group_sync<QUESTION_THREADS>(q.barrier); }

// List the question's rows whose inputs are active, in the order of threads.
template <bool FIRST>
__device__ __forceinline__ int list_active_rows(const Question& q, const RowClock& clock, const FeatureSet& present,
                                                RowEntry* entries) {
  constexpr int PARTS = divide_up(INPUTS, QUESTION_THREADS);
  QuestionShared& s = q.shared;
  u32 mask[PARTS];
  int before[PARTS], count = 0;
#pragma unroll
  for (int c = 0; c < PARTS; ++c) {
    const int row = c * QUESTION_THREADS + q.rank;
    mask[c] = __ballot_sync(EVERY_LANE, row < INPUTS && present.has(s.inputs[row]));
    before[c] = count + __popc(mask[c] & ((1u << q.lane) - 1u));
    count += __popc(mask[c]);
  }
  int start = 0, total = count;
  if constexpr (QUESTION_WARPS > 1) {
    if (q.lane == 0) s.counts[q.warp] = count;
    question_sync(q);
    total = 0;
#pragma unroll
    for (int w = 0; w < QUESTION_WARPS; ++w) {
      start += w < q.warp ? s.counts[w] : 0;
      total += s.counts[w];
    }
  }
  // a warp enters its rows with as many lanes at once as it has rows
#pragma unroll
  for (int c = 0; c < PARTS; ++c)
    if (mask[c] >> q.lane & 1u) s.listed[start + before[c]] = (u16)(c * QUESTION_THREADS + q.rank);
  __syncwarp();
  for (int k = q.lane; k - q.lane < count; k += 32) {
    const bool here = k < count;
    const RowEntry entry = enter_row<FIRST>(q.rows, clock, here, here ? s.listed[start + k] : 0u, q.lane);
    if (here) entries[start + k] = entry;
  }
  if (HIDDEN_BIAS) {
    if (q.warp == 0) {
      const RowEntry entry = enter_row<FIRST>(q.rows, clock, q.lane == 0, ROWS - 1, q.lane);
      if (q.lane == 0) entries[total] = entry;
    }
    ++total;
  }
  if (q.rank < round_up(total, BATCH) - total) entries[total + q.rank] = empty_entry(q.rows);
  question_sync(q);
  return total;
}

// New random weights for rows of w_u, at the end of the update that reaches clock `step`; thread `rank` of `count`. The
// first of the rows is at `address`. Four units share a draw, so a thread makes four at a time, of any row.
__device__ __noinline__ void draw_rows(char* address, u64 seed, u64 step, int question, int first_row, int num_rows,
                                       int rank, int count) {
  constexpr int FOURS = HIDDEN / 4;  // of a row's weights; as many of its momentum follow
  // a 24-bit number times the spread, rounded once: the spread as a sum of two floats
  const double spread = sqrt(3.0 / INPUTS);
  const float coarse = (float)spread, fine = (float)(spread - coarse);
#pragma unroll 4
  for (int k = rank; k < num_rows * FOURS; k += count) {
    const int row = k / FOURS, four = k % FOURS;
    const u32 slot = (u32)((question * ROWS + first_row + row) * DRAWS_PER_ROW + four);
    const uint4 words = draw(seed, STREAM_HIDDEN, step, slot);
    float w[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const float number = (float)(lane_of(words, u) >> 8) * 0x1p-23f - 1.0f;
      w[u] = 4 * four + u < HIDDEN_USED ? fmaf(number, coarse, number * fine) : 0.0f;
    }
    float4* const to = reinterpret_cast<float4*>(address + (u32)row * ROW_BYTES) + four;
    to[0] = make_float4(w[0], w[1], w[2], w[3]);
    to[FOURS] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

// Algorithm 4: input `p` of the question gives its row to feature `high`; its new weights are the caller's to write.
// Called before the rows learn, which this one need not do any more. Lists stay in order: the row is taken out of both
// and, if `high` is active in x_{t+1}, put at the end of the second.
__device__ __forceinline__ void swap_input(const Question& q, int p, u32 high, int* inputs, RowEntry* entries_t,
                                           int count_t, RowEntry* entries_next, int count_next, bool active, u32 step) {
  const Rows& rows = q.rows;
  for (int k = q.rank; k < max(count_t, count_next); k += QUESTION_THREADS) {
    if (k < count_t && (entries_t[k].row & ~FRESH) == (u32)p) entries_t[k] = empty_entry(rows);
    if (k < count_next && (entries_next[k].row & ~FRESH) == (u32)p) entries_next[k] = empty_entry(rows);
  }
  if (q.rank == 0) {
    q.shared.inputs[p] = (Feature)high;
    inputs[p] = (int)high;
    follow_swap(q.shared.selection);
    rows.last[p] = active ? step + 1u : step;
    if (active) {
      claim_slot(rows, (u32)p);
      entries_next[count_next] = {rows.address((u32)p), 0.0f, (u32)p, 0.0f, 0.0f, 0.0f, 0.0f};
    } else {
      give_back_slot(rows, (u32)p);
    }
  }
  question_sync(q);
}

__device__ void question_warps(Shared& shared, char* slots, u32 pool_rows, const State& state, const Scalars& scalars,
                               int run, int part, u32 num_steps) {
  const int local = threadIdx.x / QUESTION_THREADS;
  const int question = part * QUESTIONS_PER_BLOCK + local;
  const Support support = {shared, state, run, part, local};
  if (question >= QUESTIONS) {  // the last block may have room for more questions than are left
    const int lane = threadIdx.x % 32;
    if (lane < NUM_SUMS) shared.sums[0][threadIdx.x / 32][lane] = shared.sums[1][threadIdx.x / 32][lane] = 0.0f;
    if (threadIdx.x % QUESTION_THREADS == 0) shared.support_errors.x[SUPPORT_SHARED ? 0 : local] = 0.0f;
    group_sync<THREADS>(0);
    for (u32 i = 0; i < num_steps; ++i) support.step_without_question(i, scalars);
    return;
  }
  QuestionShared& s = shared.questions[local];
  const size_t index = (size_t)run * QUESTIONS + question;
  const int rank = threadIdx.x % QUESTION_THREADS, lane = rank % 32, first_unit = rank * UNITS;
  const Rows rows = {reinterpret_cast<char*>(state.hidden + index * ROWS * 2 * HIDDEN),
                     slots + local * (pool_rows + 1u) * ROW_BYTES,
                     pool_rows,
                     (u32)first_unit * 4u,
                     s.slot,
                     s.last,
                     s.pool};
  const Question q = {s, rows, rank, lane, rank / 32, QUESTION_BARRIER + local};
  const int warp_in_block = threadIdx.x / 32, first_warp = local * QUESTION_WARPS;

  // from global memory
  support.load(rank);
  s.selection.selected.clear(rank, QUESTION_THREADS);
  question_sync(q);
  empty_pool<QUESTION_THREADS>(rows, ROWS, rank);
  Row{zero_units(), zero_units()}.store(rows.in_slot(pool_rows) + rows.offset);
  int* inputs = state.inputs + index * INPUTS;
  for (int p = rank; p < INPUTS; p += QUESTION_THREADS) {
    s.inputs[p] = (Feature)inputs[p];
    s.selection.selected.add(inputs[p]);
  }
  for (int p = rank; p < ROWS; p += QUESTION_THREADS) s.last[p] = state.hidden_last[index * ROWS + p];
  Units answer_v = load_units(state.answer_v + index * HIDDEN + first_unit);
  Units answer_v_momentum = load_units(state.answer_v_momentum + index * HIDDEN + first_unit);
  Units main_v = load_units(state.main_v + index * HIDDEN + first_unit);
  Units main_v_momentum = load_units(state.main_v_momentum + index * HIDDEN + first_unit);
  const auto answer_at = [&](int a) { return (index * ACTIONS + a) * HIDDEN + first_unit; };
  const auto main_at = [&](int a) { return (((size_t)run * ACTIONS + a) * QUESTIONS + question) * HIDDEN + first_unit; };
  const auto answer_q_momentum = [&](int a) {
    return Q_MOMENTUM_SHARED ? &s.answer_q_momentum[a][first_unit] : state.answer_q_momentum + answer_at(a);
  };
  const auto main_q_momentum = [&](int a) {
    return Q_MOMENTUM_SHARED ? &s.main_q_momentum[a][first_unit] : state.main_q_momentum + main_at(a);
  };
  for (int a = 0; a < ACTIONS; ++a) {
    store_units(&s.answer_q[a][first_unit], load_units(state.answer_q + answer_at(a)));
    store_units(answer_q_momentum(a), load_units(state.answer_q_momentum + answer_at(a)));
    store_units(&s.main_q[a][first_unit], load_units(state.main_q + main_at(a)));
    store_units(main_q_momentum(a), load_units(state.main_q_momentum + main_at(a)));
  }
  int cumulant = state.cumulants[index];
  u64 swaps = 0, active_rows = 0;
  double error_sum = state.answer_error[index];  // not 0: how steps are cut into launches must not show
  question_sync(q);
  bound_blocks<QUESTION_THREADS>(support.column(), s.selection, rank, q.barrier);
  if (q.warp == 0) find_extremes(support.column(), s.inputs, scalars.input_threshold, s.selection, lane);

  Units z_t = zero_units();
  int count_t = 0, rows_t = 0;  // length of the list of x_t, and how many of its entries are rows
  bool stale = true;  // the list of active rows and the units of x_t must be made anew
  group_sync<THREADS>(0);
  for (u32 i = 0; i < num_steps; ++i) {
    const u32 step = (u32)scalars.step + i;
    const Control& control = shared.control[i & 1];
    const int action = control.action;
    RowEntry *entries_t = s.entries[i & 1], *entries_next = s.entries[(i + 1) & 1];
    const RowClock clock = {shared.decay, scalars.alpha_answer, scalars.nu, step};
    const FeatureSet& present_next = shared.present[(i + 1) % 3];

    // forward
    if (stale) {
      count_t = rows_t = list_active_rows<true>(q, clock, shared.present[i % 3], entries_t);
      z_t = settle_rows(rows, entries_t, count_t, lane);
      stale = false;
    }
    const int count_next = list_active_rows<false>(q, clock, present_next, entries_next);
    fetch_rows(rows, entries_next, count_next, lane);  // while they come: what does not need them
    Units phi_t, phi_next;
#pragma unroll
    for (int u = 0; u < UNITS; ++u) phi_t.x[u] = fmaxf(z_t.x[u], 0.0f);
    float sums[NUM_SUMS];
#pragma unroll
    for (int k = 0; k < NUM_SUMS; ++k) sums[k] = 0.0f;
    support.sum(i, sums, rank);
    if (rank == 0 && present_next.has(cumulant)) sums[CUMULANT_NEXT] = 1.0f;
    const Units answer_q = load_units(&s.answer_q[action][first_unit]);
    sums[ANSWER_V_T] = dot_units(answer_v, phi_t);
    sums[ANSWER_Q_T] = dot_units(answer_q, phi_t);
    sums[MAIN_SUMS + MAIN_V_T] = dot_units(main_v, phi_t);
    sums[MAIN_SUMS + MAIN_Q_T] = dot_units(load_units(&s.main_q[action][first_unit]), phi_t);
    await_copies();
    const Units z_next = sum_rows(rows, entries_next, count_next);
#pragma unroll
    for (int u = 0; u < UNITS; ++u) phi_next.x[u] = fmaxf(z_next.x[u], 0.0f);
    sums[ANSWER_V_NEXT] = dot_units(answer_v, phi_next);
    sums[MAIN_SUMS + MAIN_V_NEXT] = dot_units(main_v, phi_next);
#pragma unroll
    for (int a = 0; a < ACTIONS; ++a)
      sums[MAIN_SUMS + MAIN_Q_NEXT + a] = dot_units(load_units(&s.main_q[a][first_unit]), phi_next);
    warp_sums(sums, lane);
    if (writes_sum<NUM_SUMS>(lane)) shared.sums[i & 1][warp_in_block][owned_sum<NUM_SUMS>(lane)] = sums[0];
    barrier_1();

    // Algorithm 3: update_answers
    float total[MAIN_SUMS];
#pragma unroll
    for (int k = 0; k < MAIN_SUMS; ++k) {
      total[k] = 0.0f;
#pragma unroll
      for (int w = 0; w < QUESTION_WARPS; ++w) total[k] += shared.sums[i & 1][first_warp + w][k];
    }
    const float target = total[CUMULANT_NEXT] + scalars.gamma * total[ANSWER_V_NEXT];
    const float error_v = target - total[ANSWER_V_T], error_q = target - total[ANSWER_Q_T];
    active_rows += rows_t;
    rows_t = count_next;
    const Extremes extremes = s.selection.extremes;
    const bool swap = incremental_top_k(extremes, scalars.input_threshold);
    int swapped_in = 0;
    if (swap) {
      for (int k = rank; k < INPUTS; k += QUESTION_THREADS)
        if (s.inputs[k] == extremes.low) s.swapped = {k, s.last[k] == step + 1u};
      question_sync(q);
      const int p = s.swapped.input;
      const bool was_active = s.swapped.active;
      swapped_in = present_next.has((int)extremes.high);
      swap_input(q, p, extremes.high, inputs, entries_t, count_t, entries_next, count_next, swapped_in, step);
      char* const row = rows.address((u32)p);
      if (SWAPPED_RANDOM) {
        draw_rows(row, scalars.seed, (u64)step + 1, question, p, 1, rank, QUESTION_THREADS);
        question_sync(q);  // a thread draws for others, who pass over the new entry in their update: it fills up a batch
      } else {
        Row{zero_units(), zero_units()}.store(row + rows.offset);
      }
      stale = SWAPPED_RANDOM;  // zeros leave the sum over the list as it is
      rows_t += swapped_in - was_active;
      ++swaps;
    }
    support.learn(i, total, scalars, rank);
    Units gradient;
#pragma unroll
    for (int u = 0; u < UNITS; ++u)
      gradient.x[u] = z_t.x[u] > 0.0f ? -(error_v * answer_v.x[u] + error_q * answer_q.x[u]) : 0.0f;
    Units w = answer_q, m = load_units(answer_q_momentum(action));
    co_opt(w, m, phi_t, error_q, scalars.alpha_answer, scalars.nu);
    store_units(&s.answer_q[action][first_unit], w);
    store_units(answer_q_momentum(action), m);
    co_opt(answer_v, answer_v_momentum, phi_t, error_v, scalars.alpha_answer, scalars.nu);
    z_t = update_rows(rows, clock, entries_t, count_t, entries_next, count_next, gradient, lane, q.warp == 0);
    error_sum += fabsf(error_v);
    count_t = count_next + swapped_in;

    // Algorithm 4: select_inputs
    if constexpr (SUPPORT_SHARED) {
      question_sync(q);
    } else {
      support.all_questions_sync();
    }
    renew_extremes<QUESTION_THREADS>(support.column(), s.inputs, scalars.input_threshold, s.selection, rank, q.barrier);
    barrier_2();

    // Algorithm 2: update_main, the part of this thread's units
    co_opt(main_v, main_v_momentum, phi_t, control.error_v, scalars.alpha_main, scalars.nu);
    w = load_units(&s.main_q[action][first_unit]);
    m = load_units(main_q_momentum(action));
    co_opt(w, m, phi_t, control.error_q, scalars.alpha_main, scalars.nu);
    store_units(&s.main_q[action][first_unit], w);
    store_units(main_q_momentum(action), m);

    // Algorithm 5, line 2: a question whose cumulant changed. All questions of the block draw its new weights.
    const u32 change = control.cumulant_change;
    if (change != 0u && (int)changed_question(change) / QUESTIONS_PER_BLOCK == part) {
      const int changed = (int)changed_question(change), present = min(QUESTIONS_PER_BLOCK, QUESTIONS - question + local);
      if (changed == question) cumulant = (int)changed_feature(change);
      if (CHANGED_RANDOM) {
        if (changed == question) {
          stale = true;
          empty_pool<QUESTION_THREADS>(rows, ROWS, rank);
        }
        char* const changed_rows = rows.global + (ptrdiff_t)(changed - question) * (ROWS * ROW_BYTES);
        draw_rows(changed_rows, scalars.seed, (u64)step + 1, changed, 0, ROWS, threadIdx.x, present * QUESTION_THREADS);
        barrier_sync(ALL_QUESTIONS_BARRIER, present * QUESTION_THREADS);
      }
    }
  }

  // back to global memory
  const u32 step = (u32)scalars.step + num_steps;
  question_sync(q);
  write_back(rows, ROWS);
  support.store(rank);
  for (int p = rank; p < ROWS; p += QUESTION_THREADS) {
    const u32 last = s.last[p];
    state.hidden_last[index * ROWS + p] = last == step ? step - 1u : last;  // touched = last + 1 for every row
  }
  store_units(state.answer_v + index * HIDDEN + first_unit, answer_v);
  store_units(state.answer_v_momentum + index * HIDDEN + first_unit, answer_v_momentum);
  store_units(state.main_v + index * HIDDEN + first_unit, main_v);
  store_units(state.main_v_momentum + index * HIDDEN + first_unit, main_v_momentum);
  for (int a = 0; a < ACTIONS; ++a) {
    store_units(state.answer_q + answer_at(a), load_units(&s.answer_q[a][first_unit]));
    store_units(state.answer_q_momentum + answer_at(a), load_units(answer_q_momentum(a)));
    store_units(state.main_q + main_at(a), load_units(&s.main_q[a][first_unit]));
    store_units(state.main_q_momentum + main_at(a), load_units(main_q_momentum(a)));
  }
  if (rank == 0) {
    state.cumulants[index] = cumulant;
    state.input_swaps[index] += swaps;
    state.active_rows[index] += active_rows;
    state.answer_error[index] = error_sum;
  }
}
