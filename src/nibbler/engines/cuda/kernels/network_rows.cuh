// The rows of a flat network's w_u: lists of the active ones, what enters the hidden units, and their update
// (Algorithm 3), for one thread's four units.
//
// LISTS. The active rows of x_t and x_{t+1} are two lists, each in the order of its observation, with what rows lack: `last`
// is the last step at which a row was active, and its weights stand at clock last + 1. While the blocks meet, the workers
// make a list of x_{t+2} for every action that A_{t+1} may be; then the main warps take one of them. They also list
// the leavers: rows of x_t that are not in x_{t+1}.
//
// ONE PASS. What a row learns from step t - 1 is written when it is read for step t: the pass over the list of x_t brings
// every row to clock t, and adds it to what enters the units for x_t and, if it stays active, for x_{t+1}. Meanwhile the
// newcomers of x_{t+1} are on their way to shared memory; they are added as they will be at clock t, and change in the
// next pass. The leavers learn from step t as soon as it is known how, and return to global memory.
//
// POOL. A row has a slot in shared memory from the step before it becomes active until it is a leaver. Slots that are given
// back get their next rows behind a barrier. A row that finds none is far: it is used in global memory.
//
// GROUPS. ROW_GROUPS threads share each unit: they take turns with the rows of a list, with newcomers and with leavers. What
// one of them wrote, another reads behind a barrier only.

constexpr int MAIN_THREADS = 32 * MAIN_WARPS;
constexpr int ROWS = FEATURES + HIDDEN_BIAS;
constexpr int ENTRIES = SLOTS + HIDDEN_BIAS, CHUNKS = divide_up(ENTRIES, 32);
constexpr u32 FAR = 0x80000000u, LEARNS = 1u;  // in a place

struct alignas(16) Change {  // of a row in the pass
  u32 place;                 // of the row: bytes from the first slot, or FAR | 2 * its number; and LEARNS
  float keep, lagging;       // m' = keep * m, w' = w - lagging * m; or if it LEARNS, m' = keep * m + (1 - nu) * gradient and
                             // w' = w - alpha * m'
  float stay;                // 1 if the row is in the next list too, else 0
};

struct Newcomer {
  u32 place;
  float lag;  // its weights at clock t are w - lag * m
};

struct RowList {
  Change changes[ENTRIES];
  Newcomer newcomers[ENTRIES];
  Feature row[ENTRIES], newcomer_row[ENTRIES];
  int count, num_newcomers;
};

struct Leavers {
  u32 place[ENTRIES];
  Feature row[ENTRIES];
  int count;
};

struct NetworkRows {
  char* global;  // row 0 in global memory, of this block's units
  char* slots;   // slot 0 in shared memory; the last one, number pool_rows, is the row of zeros
  u32 pool_rows, offset;  // of this thread's units in a row, in bytes
  int group;              // of this thread
  u16* position;          // [ROWS] of an active row in the list of x_t
  u32* last;              // [ROWS]
  RowPool& pool;

  __device__ __forceinline__ char* in_global_memory(u32 row) const {
    return global + (size_t)row * (ROW_BYTES * UNIT_BLOCKS) + offset;
  }
  // This thread's units of the row at a place; with SOME_FAR it may be in global memory.
  template <bool SOME_FAR>
  __device__ __forceinline__ char* at(u32 place) const {
    return SOME_FAR && place & FAR ? in_global_memory((place & ~FAR) / 2u) : slots + (place & ~LEARNS) + offset;
  }
  __device__ __forceinline__ u32 zeros() const { return pool_rows * ROW_BYTES; }
};

// ---- lists ----

// The list of an observation's active rows after `now`, as far as it is known before the observation has come: see
// take_list. With FIRST it is the list of x_t at the start of a launch, and all are newcomers. By a warp, for 32 of the
// observation's slots.
template <bool FIRST>
__device__ __forceinline__ void list_chunk(const NetworkRows& rows, const RowClock& clock, const Slot* active,
                                           const RowList& now, RowList& next, int chunk, int lane) {
  int row = -1, entry = 0, new_entry = 0;
  u32 last = 0u, listed = 0u, new_here = 0u;
  bool is_new = false;
  for (int c = 0; c <= chunk; ++c) {  // also counts those of the chunks before
    entry += __popc(listed), new_entry += __popc(new_here);
    const int k = c * 32 + lane;
    row = k < SLOTS ? (int)active[k] : k < ENTRIES ? ROWS - 1 : -1;
    last = row >= 0 ? rows.last[row] : clock.step;
    is_new = row >= 0 && (FIRST || last != clock.step);
    listed = __ballot_sync(EVERY_LANE, row >= 0);
    new_here = __ballot_sync(EVERY_LANE, is_new);
  }
  if (chunk == CHUNKS - 1 && lane == 0)
    next.count = entry + __popc(listed), next.num_newcomers = new_entry + __popc(new_here);
  entry += __popc(listed & ((1u << lane) - 1u)), new_entry += __popc(new_here & ((1u << lane) - 1u));
  if (is_new) {
    const int slot = rows.pool.num_free - 1 - new_entry;
    const u32 place = slot >= 0 ? rows.pool.free_slots[slot] * ROW_BYTES : FAR | 2u * (u32)row;
    const Lag behind = lag_behind<FIRST>(clock, last);
    next.changes[entry] = {place, behind.keep, behind.lagging, 0.0f};
    next.newcomers[new_entry] = {place, behind.lag};
    next.newcomer_row[new_entry] = (Feature)row;
  } else if (row >= 0) {
    next.changes[entry] = {now.changes[rows.position[row]].place | LEARNS, clock.nu, 0.0f, 0.0f};
  }
  if (row >= 0) next.row[entry] = (Feature)row;
}

// `next` becomes the list of the step after that of `now`; by the main warps, thread `rank`. `some_far` is false before.
template <bool FIRST>
__device__ __forceinline__ void take_list(const NetworkRows& rows, u32 step, RowList& now, const RowList& next,
                                          bool& some_far, int rank) {
  for (int k = rank; k < next.count; k += MAIN_THREADS) {
    const int row = next.row[k];
    const u32 place = next.changes[k].place;
    if (!FIRST && (place & LEARNS)) now.changes[rows.position[row]].stay = 1.0f;
    if (place & FAR) some_far = true;
    rows.position[row] = (u16)k;
    rows.last[row] = step;
  }
  if (rank == 0) rows.pool.num_free = max(rows.pool.num_free - next.num_newcomers, 0);
}

// The rows of a list that are not in the next; their slots are free for the list after it. By one warp.
__device__ __forceinline__ void list_leavers(const NetworkRows& rows, const RowList& list, Leavers& leavers, int lane) {
  int free = rows.pool.num_free, count = 0;
  for (int first = 0; first < list.count; first += 32) {
    const int k = first + lane;
    const Change change = k < list.count ? list.changes[k] : Change{0u, 0.0f, 0.0f, 1.0f};
    const bool leaves = change.stay == 0.0f, gives = leaves && !(change.place & FAR);
    const u32 leaving = __ballot_sync(EVERY_LANE, leaves), giving = __ballot_sync(EVERY_LANE, gives);
    const u32 lanes_before = (1u << lane) - 1u;
    if (leaves) {
      leavers.place[count + __popc(leaving & lanes_before)] = change.place;
      leavers.row[count + __popc(leaving & lanes_before)] = list.row[k];
    }
    if (gives) rows.pool.free_slots[free + __popc(giving & lanes_before)] = (u16)(change.place / ROW_BYTES);
    count += __popc(leaving), free += __popc(giving);
  }
  __syncwarp();
  if (lane == 0) rows.pool.num_free = free, leavers.count = count;
}

// ---- rows, by the workers ----

// The newcomers begin to come to their slots.
__device__ __forceinline__ void fetch_newcomers(const NetworkRows& rows, const RowList& list) {
  const int count = list.num_newcomers;
  for (int first = rows.group; first < count; first += ROW_GROUPS * BATCH) {
    u32 place[BATCH];
    const char* from[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int k = first + r * ROW_GROUPS;
      place[r] = k < count ? list.newcomers[k].place : FAR;
      from[r] = k < count ? rows.in_global_memory(list.newcomer_row[k]) : nullptr;
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r)
      if (!(place[r] & FAR)) fetch_row(rows.at<false>(place[r]), from[r]);
  }
}

// What the newcomers add to the units, after they have come.
template <bool SOME_FAR>
__device__ __forceinline__ void add_newcomers(const NetworkRows& rows, const RowList& list, Units& z_next) {
  const int count = list.num_newcomers;
  for (int first = rows.group; first < count; first += ROW_GROUPS * BATCH) {
    Row row[BATCH];
    float lag[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int k = first + r * ROW_GROUPS;
      const Newcomer newcomer = k < count ? list.newcomers[k] : Newcomer{rows.zeros(), 0.0f};
      lag[r] = newcomer.lag;
      row[r].load(rows.at<SOME_FAR>(newcomer.place));
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) row[r].add_to(z_next, lag[r]);
  }
}

__device__ __forceinline__ void apply(const Change& change, Row& row, const Units& learned, float alpha) {
  const bool learns = change.place & LEARNS;
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    const float before = row.m.x[u];
    row.m.x[u] = fmaf(change.keep, before, learns ? learned.x[u] : 0.0f);
    row.w.x[u] = fmaf(learns ? -alpha : -change.lagging, learns ? row.m.x[u] : before, row.w.x[u]);
  }
}

// The pass over the rows of x_t: they reach clock t with what they learned from the step before, (1 - nu) times the
// gradient. Adds them to what enters the units for x_t and, those that stay, for x_{t+1}.
template <bool SOME_FAR>
__device__ __forceinline__ void pass_over(const NetworkRows& rows, const RowList& list, const Units& learned, float alpha,
                                          Units& z_t, Units& z_next) {
  const int count = list.count;
  for (int first = rows.group; first < count; first += ROW_GROUPS * BATCH) {
    Row row[BATCH];
    Change change[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int k = first + r * ROW_GROUPS;
      change[r] = k < count ? list.changes[k] : Change{rows.zeros(), 0.0f, 0.0f, 0.0f};
      row[r].load(rows.at<SOME_FAR>(change[r].place));
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      apply(change[r], row[r], learned, alpha);
#pragma unroll
      for (int u = 0; u < UNITS; ++u) {
        z_t.x[u] += row[r].w.x[u];
        z_next.x[u] = fmaf(change[r].stay, row[r].w.x[u], z_next.x[u]);
      }
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r)  // all groups read the row of zeros, so that none may write it
      if (first + r * ROW_GROUPS < count) row[r].store(rows.at<SOME_FAR>(change[r].place));
  }
}

// The leavers learn from this step and return to global memory.
template <bool SOME_FAR>
__device__ __forceinline__ void release_rows(const NetworkRows& rows, const Leavers& leavers, const Units& learned,
                                             float alpha, float nu) {
  const int count = leavers.count;
  for (int first = rows.group; first < count; first += ROW_GROUPS * BATCH) {
    Row row[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int k = first + r * ROW_GROUPS;
      row[r].load(rows.at<SOME_FAR>(k < count ? leavers.place[k] : rows.zeros()));
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int k = first + r * ROW_GROUPS;
      apply({LEARNS, nu, 0.0f, 0.0f}, row[r], learned, alpha);
      if (k < count) row[r].store(rows.in_global_memory(leavers.row[k]));
    }
  }
}

// At the end of a launch: the rows of x_t reach clock t and return to global memory.
__device__ __noinline__ void settle_rows(const NetworkRows rows, const RowList& list, const Units learned, float alpha) {
  Units unused_t = zero_units(), unused_next = zero_units();
  pass_over<true>(rows, list, learned, alpha, unused_t, unused_next);
  for (int k = rows.group; k < list.count; k += ROW_GROUPS) {
    const u32 place = list.changes[k].place;
    if (place & FAR) continue;
    Row row;
    row.load(rows.at<false>(place));
    row.store(rows.in_global_memory(list.row[k]));
  }
}
