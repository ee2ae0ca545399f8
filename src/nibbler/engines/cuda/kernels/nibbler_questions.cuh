// The questions' warps: update_answers (Algorithm 3), select_inputs (Algorithm 4), and their part of update_main.

struct Question {  // what a thread of a question's group knows
  QuestionShared& shared;
  const Rows& rows;
  const Place* place;
  int rank, lane, warp, barrier;
};

__device__ __forceinline__ void question_sync(const Question& q) { group_sync<QUESTION_THREADS>(q.barrier); }

// List the question's rows that are active, in the order of threads.
template <bool FIRST>
__device__ __forceinline__ int list_active_rows(const Question& q, const RowClock& clock, const Slot* active,
                                                RowEntry* entries) {
  QuestionShared& s = q.shared;
  u32 mask[CHUNKS];
  int row[CHUNKS], before[CHUNKS], count = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const int feature = feature_at<QUESTION_THREADS>(active, c, q.rank);
    const Place place = feature < 0 ? nowhere<Place>() : q.place[feature];
    const bool here = place != nowhere<Place>();
    mask[c] = __ballot_sync(EVERY_LANE, here);
    row[c] = here ? (int)place : -1;
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
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (mask[c] != 0u) {
      const RowEntry entry = enter_row<FIRST>(q.rows, clock, row[c] >= 0, (u32)row[c], q.lane);
      if (row[c] >= 0) entries[start + before[c]] = entry;
    }
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

// Algorithm 4: input `low` of the question gives its row to feature `high`; its new weights are the caller's to write.
// Called before the rows learn, which this one need not do any more. Lists stay in order: the row is taken out of both
// and, if `high` is active in x_{t+1}, put at the end of the second.
__device__ __forceinline__ void swap_input(const Question& q, int p, const Extremes& extremes, Place* place, int* inputs,
                                           RowEntry* entries_t, int count_t, RowEntry* entries_next, int count_next,
                                           bool active, u32 step) {
  const Rows& rows = q.rows;
  for (int k = q.rank; k < max(count_t, count_next); k += QUESTION_THREADS) {
    if (k < count_t && (entries_t[k].row & ~FRESH) == (u32)p) entries_t[k] = empty_entry(rows);
    if (k < count_next && (entries_next[k].row & ~FRESH) == (u32)p) entries_next[k] = empty_entry(rows);
  }
  if (q.rank == 0) {
    place[extremes.low] = nowhere<Place>();
    place[extremes.high] = (Place)p;
    inputs[p] = (int)extremes.high;
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
  if (question >= QUESTIONS) {  // the last block may have room for more questions than are left
    const int lane = threadIdx.x % 32;
    if (lane < NUM_SUMS) shared.sums[0][threadIdx.x / 32][lane] = shared.sums[1][threadIdx.x / 32][lane] = 0.0f;
    group_sync<THREADS>(0);
    for (u32 i = 0; i < num_steps; ++i) {
      barrier_1();
      barrier_2();
    }
    return;
  }
  QuestionShared& s = shared.questions[local];
  const size_t index = (size_t)run * QUESTIONS + question;
  const int rank = threadIdx.x % QUESTION_THREADS, lane = rank % 32, first_unit = rank * UNITS;
#if SUPPORT_SHARED
  float* support = s.support;
  Place* place = s.place;
#else
  float* support = state.support + index * FEATURES;
  Place* place = reinterpret_cast<Place*>(state.support_place) + index * FEATURES;
#endif
#if LINEAR_MOMENTUM && SUPPORT_SHARED
  float* support_momentum = s.support_momentum;
#else
  float* support_momentum = LINEAR_MOMENTUM ? state.support_momentum + index * FEATURES : nullptr;
#endif
  const Rows rows = {reinterpret_cast<char*>(state.hidden + index * ROWS * 2 * HIDDEN),
                     slots + local * (pool_rows + 1u) * ROW_BYTES,
                     pool_rows,
                     (u32)first_unit * 4u,
                     s.slot,
                     s.last,
                     s.pool};
  const Question q = {s, rows, place, rank, lane, rank / 32, QUESTION_BARRIER + local};
  const int warp_in_block = threadIdx.x / 32, first_warp = local * QUESTION_WARPS;

  // from global memory
  for (int f = rank; f < FEATURES; f += QUESTION_THREADS) {
    place[f] = nowhere<Place>();
#if SUPPORT_SHARED
    support[f] = state.support[index * FEATURES + f];
    if (LINEAR_MOMENTUM) support_momentum[f] = state.support_momentum[index * FEATURES + f];
#endif
  }
  question_sync(q);
  empty_pool<QUESTION_THREADS>(rows, ROWS, rank);
  Row{zero_units(), zero_units()}.store(rows.in_slot(pool_rows) + rows.offset);
  int* inputs = state.inputs + index * INPUTS;
  for (int p = rank; p < INPUTS; p += QUESTION_THREADS) place[inputs[p]] = (Place)p;
  for (int p = rank; p < ROWS; p += QUESTION_THREADS) s.last[p] = state.hidden_last[index * ROWS + p];
  Units answer_v = load_units(state.answer_v + index * HIDDEN + first_unit);
  Units answer_v_momentum = load_units(state.answer_v_momentum + index * HIDDEN + first_unit);
  Units main_v = load_units(state.main_v + index * HIDDEN + first_unit);
  Units main_v_momentum = load_units(state.main_v_momentum + index * HIDDEN + first_unit);
  for (int a = 0; a < ACTIONS; ++a) {
    const size_t answer_at = (index * ACTIONS + a) * HIDDEN + first_unit;
    const size_t main_at = (((size_t)run * ACTIONS + a) * QUESTIONS + question) * HIDDEN + first_unit;
    store_units(&s.answer_q[a][first_unit], load_units(state.answer_q + answer_at));
    store_units(&s.answer_q_momentum[a][first_unit], load_units(state.answer_q_momentum + answer_at));
    store_units(&s.main_q[a][first_unit], load_units(state.main_q + main_at));
    store_units(&s.main_q_momentum[a][first_unit], load_units(state.main_q_momentum + main_at));
  }
  int cumulant = state.cumulants[index];
  u64 swaps = 0, active_rows = 0;
  double error_sum = state.answer_error[index];  // not 0: how steps are cut into launches must not show
  question_sync(q);
  bound_blocks<QUESTION_THREADS>(support, place, s.selection, rank, q.barrier);
  if (q.warp == 0) find_extremes(support, place, scalars.input_threshold, s.selection, lane);

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
    const Slot *active_t = shared.active[i % 3], *active_next = shared.active[(i + 1) % 3];

    // forward
    if (stale) {
      count_t = rows_t = list_active_rows<true>(q, clock, active_t, entries_t);
      z_t = settle_rows(rows, entries_t, count_t, lane);
      stale = false;
    }
    const int count_next = list_active_rows<false>(q, clock, active_next, entries_next);
    fetch_rows(rows, entries_next, count_next, lane);  // while they come: what does not need them
    Units phi_t, phi_next;
#pragma unroll
    for (int u = 0; u < UNITS; ++u) phi_t.x[u] = fmaxf(z_t.x[u], 0.0f);
    float sums[NUM_SUMS];
#pragma unroll
    for (int k = 0; k < NUM_SUMS; ++k) sums[k] = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const int feature_t = feature_at<QUESTION_THREADS>(active_t, c, rank);
      const int feature_next = feature_at<QUESTION_THREADS>(active_next, c, rank);
      if (feature_t >= 0) sums[SUPPORT_T] += support[feature_t];
      if (feature_next >= 0) sums[SUPPORT_NEXT] += support[feature_next];
      if (feature_next == cumulant) sums[CUMULANT_NEXT] = 1.0f;
    }
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
      const int p = place[extremes.low];
      const bool was_active = s.last[p] == step + 1u;
      bool mine = false;
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c)
        mine |= feature_at<QUESTION_THREADS>(active_next, c, rank) == (int)extremes.high;
      swapped_in = group_any<QUESTION_THREADS>(mine, q.barrier);
      swap_input(q, p, extremes, place, inputs, entries_t, count_t, entries_next, count_next, swapped_in, step);
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
    Units gradient;
#pragma unroll
    for (int u = 0; u < UNITS; ++u)
      gradient.x[u] = z_t.x[u] > 0.0f ? -(error_v * answer_v.x[u] + error_q * answer_q.x[u]) : 0.0f;
    Units w = answer_q, m = load_units(&s.answer_q_momentum[action][first_unit]);
    co_opt(w, m, phi_t, error_q, scalars.alpha_answer, scalars.nu);
    store_units(&s.answer_q[action][first_unit], w);
    store_units(&s.answer_q_momentum[action][first_unit], m);
    co_opt(answer_v, answer_v_momentum, phi_t, error_v, scalars.alpha_answer, scalars.nu);
    z_t = update_rows(rows, clock, entries_t, count_t, entries_next, count_next, gradient, lane, q.warp == 0);
    error_sum += fabsf(error_v);
    count_t = count_next + swapped_in;

    // Algorithm 4: select_inputs
    const float support_error =
        total[CUMULANT_NEXT] + scalars.gamma * total[SUPPORT_NEXT] - total[SUPPORT_T];
    update_linear<QUESTION_THREADS>(support, support_momentum, place, active_t, support_error,
                                    scalars.alpha_linear, scalars.linear_nu, scalars.input_threshold, s.selection,
                                    rank, q.barrier);
    barrier_2();

    // Algorithm 2: update_main, the part of this thread's units
    co_opt(main_v, main_v_momentum, phi_t, control.error_v, scalars.alpha_main, scalars.nu);
    w = load_units(&s.main_q[action][first_unit]);
    m = load_units(&s.main_q_momentum[action][first_unit]);
    co_opt(w, m, phi_t, control.error_q, scalars.alpha_main, scalars.nu);
    store_units(&s.main_q[action][first_unit], w);
    store_units(&s.main_q_momentum[action][first_unit], m);

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
#if SUPPORT_SHARED
  for (int f = rank; f < FEATURES; f += QUESTION_THREADS) {
    state.support[index * FEATURES + f] = support[f];
    if (LINEAR_MOMENTUM) state.support_momentum[index * FEATURES + f] = support_momentum[f];
  }
#endif
  for (int p = rank; p < ROWS; p += QUESTION_THREADS) {
    const u32 last = s.last[p];
    state.hidden_last[index * ROWS + p] = last == step ? step - 1u : last;  // touched = last + 1 for every row
  }
  store_units(state.answer_v + index * HIDDEN + first_unit, answer_v);
  store_units(state.answer_v_momentum + index * HIDDEN + first_unit, answer_v_momentum);
  store_units(state.main_v + index * HIDDEN + first_unit, main_v);
  store_units(state.main_v_momentum + index * HIDDEN + first_unit, main_v_momentum);
  for (int a = 0; a < ACTIONS; ++a) {
    const size_t answer_at = (index * ACTIONS + a) * HIDDEN + first_unit;
    const size_t main_at = (((size_t)run * ACTIONS + a) * QUESTIONS + question) * HIDDEN + first_unit;
    store_units(state.answer_q + answer_at, load_units(&s.answer_q[a][first_unit]));
    store_units(state.answer_q_momentum + answer_at, load_units(&s.answer_q_momentum[a][first_unit]));
    store_units(state.main_q + main_at, load_units(&s.main_q[a][first_unit]));
    store_units(state.main_q_momentum + main_at, load_units(&s.main_q_momentum[a][first_unit]));
  }
  if (rank == 0) {
    state.cumulants[index] = cumulant;
    state.input_swaps[index] += swaps;
    state.active_rows[index] += active_rows;
    state.answer_error[index] = error_sum;
  }
}
