// The rows of a flat network's w_u: lists of the active ones, what enters the hidden units, and their update
// (Algorithm 3), for one thread's four units.
//
// LISTS. The active rows of x_t, x_{t+1} and x_{t+2} are three lists, each in the order of its observation. The main warps
// make them, and work out what rows lack: `last` is the last step at which a row was active, and its weights stand
// at clock last + 1. They also list the newcomers of x_{t+1}, and the rows of x_t that x_{t+1} leaves out.
//
// ONE PASS. What a row learns from step t - 1 is written when it is read for step t: the pass over the list of x_t brings
// every row to clock t, and adds it to what enters the units for x_t and, if it stays active, for x_{t+1}. Meanwhile the
// newcomers of x_{t+1} are on their way to shared memory; they are added as they will be at clock t, and change in the
// next pass. Rows that x_{t+1} leaves out learn from step t at once, and return to global memory.
//
// POOL. A row has a slot in shared memory from the step before it becomes active until it is left out. Slots that are given
// back get their next rows behind a barrier. A row that finds none is far: it is used in global memory.
//
// GROUPS. ROW_GROUPS threads share each unit: they take turns with the rows of a list, with newcomers and with rows that are
// left out. What one of them wrote, another reads behind a barrier only.

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

struct RowList {
  Change changes[ENTRIES];
  Feature row[ENTRIES];
  int count;
  bool some_far;
};

struct Newcomer {
  u32 place;
  float lag;  // its weights at clock t are w - lag * m
};

struct Newcomers {
  Newcomer each[ENTRIES];
  Feature row[ENTRIES];
  int in_chunk[CHUNKS];  // of the observation's slots, how many
  int count;
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

// ---- lists, by the main warps ----

// Row `row` becomes number `entry` of the list of x_{t+1}, after that of x_t. With FIRST it is the list of x_t at the start of
// a launch, and all are newcomers; `slot` is for those. Returns the row's lag if it is one.
template <bool FIRST>
__device__ __forceinline__ float enter_row(const NetworkRows& rows, const RowClock& clock, RowList& now, RowList& next,
                                           u32 row, int entry, u32 last, u16 slot) {
  Change change = {(slot != NO_SLOT ? slot * ROW_BYTES : FAR | 2u * row) | LEARNS, clock.nu, 0.0f, 0.0f};
  float lag = 0.0f;
  if (!FIRST && last == clock.step) {
    Change& before = now.changes[rows.position[row]];
    change.place = before.place | LEARNS;
    before.stay = 1.0f;
  } else {
    const Lag behind = lag_behind<FIRST>(clock, last);
    lag = behind.lag;
    change.place &= ~LEARNS, change.keep = behind.keep, change.lagging = behind.lagging;
  }
  next.changes[entry] = change;
  next.row[entry] = (Feature)row;
  if (change.place & FAR) next.some_far = true;
  rows.position[row] = (u16)entry;
  rows.last[row] = FIRST ? clock.step : clock.step + 1u;
  return lag;
}

// The list of an observation's active rows, see enter_row, and of those that are newcomers; by the main warps, thread `rank`.
// The list's `some_far` is false before.
template <bool FIRST>
__device__ __forceinline__ void list_rows(const NetworkRows& rows, const RowClock& clock, const Slot* active, RowList& now,
                                          RowList& next, Newcomers& newcomers, int rank, int barrier) {
  constexpr int TURNS = divide_up(CHUNKS, MAIN_WARPS);  // of a warp
  const int lane = rank % 32, warp = rank / 32;
  const u32 lanes_before = (1u << lane) - 1u;
  u32 places[TURNS], new_here[TURNS];
  float lags[TURNS];
  int rows_here[TURNS], count = 0;
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
#pragma unroll
    for (int w = 0; w < MAIN_WARPS; ++w) {  // every warp counts the rows of all chunks, and enters those of one
      const int k = (turn * MAIN_WARPS + w) * 32 + lane;
      if (k - lane >= ENTRIES) break;
      const int row = k < SLOTS ? (int)active[k] : k < ENTRIES ? ROWS - 1 : -1;
      const u32 listed = __ballot_sync(EVERY_LANE, row >= 0);
      if (w == warp) {
        const u32 last = row >= 0 ? rows.last[row] : clock.step;
        const bool is_new = row >= 0 && (FIRST || last != clock.step);
        new_here[turn] = __ballot_sync(EVERY_LANE, is_new);
        const u16 slot = take_slot(rows.pool, is_new, lane);
        const int entry = count + __popc(listed & lanes_before);
        rows_here[turn] = row;
        if (row >= 0) {
          lags[turn] = enter_row<FIRST>(rows, clock, now, next, (u32)row, entry, last, slot);
          places[turn] = next.changes[entry].place;
        }
        if (lane == 0) newcomers.in_chunk[turn * MAIN_WARPS + w] = __popc(new_here[turn]);
      }
      count += __popc(listed);
    }
  }
  if (rank == 0) next.count = count;
  group_sync<MAIN_THREADS>(barrier);
  int before = 0;
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
#pragma unroll
    for (int w = 0; w < MAIN_WARPS; ++w) {
      const int chunk = turn * MAIN_WARPS + w;
      if (chunk >= CHUNKS) break;
      if (w == warp && (new_here[turn] >> lane & 1u)) {
        const int k = before + __popc(new_here[turn] & lanes_before);
        newcomers.each[k] = {places[turn], lags[turn]};
        newcomers.row[k] = (Feature)rows_here[turn];
      }
      before += newcomers.in_chunk[chunk];
    }
  }
  if (rank == 0) newcomers.count = before;
}

// The rows of a list that are not in the next; their slots are free for the list after it. By one warp.
__device__ __forceinline__ void list_leavers(const NetworkRows& rows, const RowList& list, Leavers& leavers, int lane) {
  int free = max(rows.pool.num_free, 0), count = 0;
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
__device__ __forceinline__ void fetch_newcomers(const NetworkRows& rows, const Newcomers& newcomers) {
  for (int k = rows.group; k < newcomers.count; k += ROW_GROUPS) {
    const u32 place = newcomers.each[k].place;
    if (!(place & FAR)) fetch_row(rows.at<false>(place), rows.in_global_memory(newcomers.row[k]));
  }
}

// What the newcomers add to the units, after they have come.
template <bool SOME_FAR>
__device__ __forceinline__ void add_newcomers(const NetworkRows& rows, const Newcomers& newcomers, Units& z_next) {
  const int count = newcomers.count;
  for (int first = rows.group; first < count; first += ROW_GROUPS * BATCH) {
    Row row[BATCH];
    float lag[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int k = first + r * ROW_GROUPS;
      const Newcomer newcomer = k < count ? newcomers.each[k] : Newcomer{rows.zeros(), 0.0f};
      lag[r] = newcomer.lag;
      row[r].load(rows.at<SOME_FAR>(newcomer.place));
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) row[r].add_to(z_next, lag[r]);
  }
}

// Algorithm 7, co_opt, for a row after a wait.
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

// Rows that are not in the next list learn from this step and return to global memory.
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
