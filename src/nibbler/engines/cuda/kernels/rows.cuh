// Rows of hidden weights w_u: their sum over the active inputs, and their update (Algorithm 3), for one
// thread's UNITS units. The flat networks share what rows are, the pool and the lags; network_rows.cuh has the rest.
//
// LISTS. The active rows of x_t and of x_{t+1} are two lists. What to do with a row is worked out once, by the thread
// that enters it (`RowEntry`), and then done by all threads for their units. `last` is the last step t at which a
// row was active (in x_t): its weights stand at clock last + 1, or at clock t while it is active. Lists are filled up
// to a multiple of BATCH with entries that point to a row of zeros, so that BATCH rows are always in flight at once.
//
// POOL. A row that becomes active gets one of the pool's slots in shared memory and keeps it until it is no longer
// active; only then does it return to global memory. A row that finds no slot is used where it is. A thread reads and
// writes its own units only, so that learning needs no synchronisation; new random weights, the lists and the pool do.

constexpr int ROW_UNITS = HIDDEN / UNIT_BLOCKS;  // of a row, in one block
constexpr u32 ROW_BYTES = 2u * ROW_UNITS * sizeof(float);
constexpr u32 NO_ROW = 0xffffffffu, FRESH = 0x80000000u;  // in an entry's `row`: none; just got its slot
constexpr u16 NO_SLOT = 0xffffu;
constexpr int FEW = BATCH < 4 ? BATCH : 4;  // rows in flight at once where there may be few

struct alignas(16) RowEntry {
  char* address;  // of the row, in shared or global memory
  float lag;      // the weights at clock t are w - lag * m
  u32 row;
  // the update: m' = keep * m + add * gradient, w' = w - direct * m' - lagging * m
  float keep, add, direct, lagging;
};

struct RowPool {  // in shared memory; the slots themselves lie elsewhere in it
  int num_free;   // below 0 when more were wanted
  u16 free_slots[MAX_POOL_ROWS > 0 ? MAX_POOL_ROWS : 1];
};

struct Rows {
  char* global;  // row 0, in global memory
  char* slots;   // slot 0, in shared memory; the last one, number pool_rows, is the row of zeros
  u32 pool_rows, offset;  // of this thread's units in a row, in bytes
  u16* slot;     // [rows]
  u32* last;     // [rows]
  RowPool& pool;

  __device__ __forceinline__ char* in_global_memory(u32 row) const {
    return global + (size_t)row * ROW_BYTES;
  }
  __device__ __forceinline__ char* in_slot(u32 slot_number) const { return slots + slot_number * ROW_BYTES; }
  __device__ __forceinline__ char* address(u32 row) const {
    return slot[row] != NO_SLOT ? in_slot(slot[row]) : in_global_memory(row);
  }
};

// What the thread that enters rows needs to know.
struct RowClock {
  const DecayTable& decay;
  float alpha, nu;
  u32 step;
};

// What a row lacks that does not learn from step t: its weights at clock t are w - lag * m. In the update that reaches clock
// t + 1 (with FIRST, clock t), m' = keep * m and w' = w - lagging * m. `last` is when the row was last active.
struct Lag {
  float lag, keep, lagging;
};

template <bool FIRST>
__device__ __forceinline__ Lag lag_behind(const RowClock& clock, u32 last) {
  const u32 gap = FIRST && last == clock.step ? 0u : clock.step - (last + 1u);
  const Decay now = decay_over(clock.decay, clock.nu, gap);
  const Decay then = FIRST ? now : decay_over(clock.decay, clock.nu, gap + 1u);
  return {clock.alpha * now.sum, then.power, clock.alpha * then.sum};
}

// ---- one row in registers ----

struct Row {
  Units w, m;

  __device__ __forceinline__ void load(const char* address) {
    w = load_units(reinterpret_cast<const float*>(address));
    m = load_units(reinterpret_cast<const float*>(address) + ROW_UNITS);
  }
  __device__ __forceinline__ void store(char* address) const {
    store_units(reinterpret_cast<float*>(address), w);
    store_units(reinterpret_cast<float*>(address) + ROW_UNITS, m);
  }
  __device__ __forceinline__ void add_to(Units& sum, float lag) const {
#pragma unroll
    for (int u = 0; u < UNITS; ++u) sum.x[u] += w.x[u] - lag * m.x[u];
  }
  __device__ __forceinline__ void update(const RowEntry& entry, const Units& gradient) {
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      const float before = m.x[u];
      m.x[u] = entry.keep * before + entry.add * gradient.x[u];
      w.x[u] -= entry.direct * m.x[u] + entry.lagging * before;
    }
  }
};

__device__ __forceinline__ void add_units(Units& sum, const Units& more) {
#pragma unroll
  for (int u = 0; u < UNITS; ++u) sum.x[u] += more.x[u];
}

// ---- the pool ----

// All slots are free; by COUNT threads, who synchronise afterwards.
template <int COUNT>
__device__ __forceinline__ void fill_pool(RowPool& pool, u32 pool_rows, int rank) {
  for (int k = rank; k < (int)pool_rows; k += COUNT) pool.free_slots[k] = (u16)k;
  if (rank == 0) pool.num_free = (int)pool_rows;
}

// All slots are free and all rows in global memory; by COUNT threads, who synchronise afterwards.
template <int COUNT>
__device__ __forceinline__ void empty_pool(const Rows& rows, int num_rows, int rank) {
  for (int row = rank; row < num_rows; row += COUNT) rows.slot[row] = NO_SLOT;
  fill_pool<COUNT>(rows.pool, rows.pool_rows, rank);
}

// A free slot for every lane that wants one, NO_SLOT where there is none left; by a whole warp.
__device__ __forceinline__ u16 take_slot(RowPool& pool, bool wanted, int lane) {
  const u32 wanting = __ballot_sync(EVERY_LANE, wanted);
  if (wanting == 0u) return NO_SLOT;
  int left = 0;
  if (lane == 0) left = atomicSub(&pool.num_free, __popc(wanting));
  left = __shfl_sync(EVERY_LANE, left, 0) - 1 - __popc(wanting & ((1u << lane) - 1u));
  return wanted && left >= 0 ? pool.free_slots[left] : NO_SLOT;
}

// The pool gets the slot of one row back; by one thread, while nobody takes.
__device__ __forceinline__ void give_back_slot(const Rows& rows, u32 row) {
  const u16 slot = rows.slot[row];
  if (slot == NO_SLOT) return;
  const int free = max(rows.pool.num_free, 0);
  rows.pool.free_slots[free] = slot;
  rows.pool.num_free = free + 1;
  rows.slot[row] = NO_SLOT;
}

// A slot for one row, if it has none and one is free; by one thread, while nobody takes.
__device__ __forceinline__ void claim_slot(const Rows& rows, u32 row) {
  if (rows.slot[row] != NO_SLOT || rows.pool.num_free <= 0) return;
  rows.slot[row] = rows.pool.free_slots[--rows.pool.num_free];
}

// This thread's units of every row that is in a slot, back to global memory.
__device__ __noinline__ void write_back(const Rows rows, int num_rows) {
  for (int row = 0; row < num_rows; ++row) {
    const u16 slot = rows.slot[row];
    if (slot != NO_SLOT) {
      Row held;
      held.load(rows.in_slot(slot) + rows.offset);
      held.store(rows.in_global_memory(row) + rows.offset);
    }
  }
}

// ---- lists ----

__device__ __forceinline__ RowEntry empty_entry(const Rows& rows) {
  return {rows.in_slot(rows.pool_rows), 0.0f, NO_ROW, 0.0f, 0.0f, 0.0f, 0.0f};
}

// The entry of a row in the list of x_{t+1}, or, with FIRST, in that of x_t after a launch began or the inputs
// changed (then the update only brings rows that lag to clock t). By a whole warp; `here` tells which lanes have a row.
template <bool FIRST>
__device__ __forceinline__ RowEntry enter_row(const Rows& rows, const RowClock& clock, bool here, u32 row, int lane) {
  u16 slot = here ? rows.slot[row] : NO_SLOT;
  const bool homeless = here && slot == NO_SLOT;
  const u16 taken = take_slot(rows.pool, homeless, lane);
  if (!here) return empty_entry(rows);
  const bool fresh = taken != NO_SLOT;
  if (fresh) rows.slot[row] = slot = taken;
  const u32 last = rows.last[row];
  RowEntry entry;
  entry.address = slot != NO_SLOT ? rows.in_slot(slot) : rows.in_global_memory(row);
  entry.row = row | (fresh ? FRESH : 0u);
  if (!FIRST && last == clock.step) {
    entry.lag = 0.0f, entry.keep = clock.nu, entry.add = 1.0f - clock.nu, entry.direct = clock.alpha, entry.lagging = 0.0f;
  } else {
    const Lag behind = lag_behind<FIRST>(clock, last);
    entry.lag = behind.lag, entry.keep = behind.keep, entry.add = 0.0f, entry.direct = 0.0f, entry.lagging = behind.lagging;
  }
  rows.last[row] = FIRST ? clock.step : clock.step + 1u;
  return entry;
}

// ---- what enters the hidden units ----

// Copies this thread's units of a row from global to shared memory without waiting for them.
__device__ __forceinline__ void fetch_row(char* slot, const char* global) {
  constexpr int BYTES = UNITS >= 4 ? 16 : 4 * UNITS;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int at = 0; at < 4 * UNITS; at += BYTES) {
      const int offset = half * (ROW_UNITS * 4) + at;
      copy_async<BYTES>(slot + offset, global + offset);
    }
  }
}

// Rows that just got a slot are copied there; await_copies waits for them.
__device__ __forceinline__ void fetch_rows(const Rows& rows, const RowEntry* entries, int count, int lane) {
  for (int first = 0; first < count; first += 32) {
    const u32 row = first + lane < count ? entries[first + lane].row : NO_ROW;
    u32 fresh = __ballot_sync(EVERY_LANE, row != NO_ROW && (row & FRESH));
    while (fresh != 0u) {
      const RowEntry& entry = entries[first + __ffs(fresh) - 1];
      fetch_row(entry.address + rows.offset, rows.in_global_memory(entry.row & ~FRESH) + rows.offset);
      fresh &= fresh - 1u;
    }
  }
}

// The sum of the rows of x_{t+1} at clock t.
__device__ __forceinline__ Units sum_rows(const Rows& rows, const RowEntry* entries, int count) {
  Units sum = zero_units();
  for (int k = 0; k < count; k += BATCH) {
    Row row[BATCH];
    float lag[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      row[r].load(entries[k + r].address + rows.offset);
      lag[r] = entries[k + r].lag;
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) row[r].add_to(sum, lag[r]);
  }
  return sum;
}

// ---- Algorithm 3 for w_u ----

// The rows of a list get their update. Returns the sum of their weights after it, in the order of the list.
__device__ __forceinline__ Units update_listed(const Rows& rows, const RowEntry* entries, int count,
                                               const Units& gradient) {
  Units sum = zero_units();
  for (int k = 0; k < count; k += BATCH) {
    Row row[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) row[r].load(entries[k + r].address + rows.offset);
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      row[r].update(entries[k + r], gradient);
      add_units(sum, row[r].w);
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) row[r].store(entries[k + r].address + rows.offset);
  }
  return sum;
}

// The sum of the rows of x_t after a launch began or the inputs changed; rows that lag are brought to clock t.
__device__ __noinline__ Units settle_rows(const Rows rows, const RowEntry* entries, int count, int lane) {
  fetch_rows(rows, entries, count, lane);
  await_copies();
  return update_listed(rows, entries, count, zero_units());
}

// Rows of x_t get their gradient; rows of x_{t+1} are brought to clock t + 1 as well. Rows of x_t alone return to
// global memory. Returns the sum of the rows of x_{t+1} at that clock, as settle_rows would find it.
__device__ __forceinline__ Units update_rows(const Rows& rows, const RowClock& clock, const RowEntry* entries_t,
                                             int count_t, const RowEntry* entries_next, int count_next,
                                             const Units& gradient, int lane, bool first_warp) {
  const Units sum = update_listed(rows, entries_next, count_next, gradient);
  const RowEntry learning = {nullptr, 0.0f, NO_ROW, clock.nu, 1.0f - clock.nu, clock.alpha, 0.0f};
  for (int first = 0; first < count_t; first += 32) {
    const u32 mine = first + lane < count_t ? entries_t[first + lane].row : NO_ROW;
    const bool leaves = mine != NO_ROW && rows.last[mine & ~FRESH] == clock.step;
    u32 leaving = __ballot_sync(EVERY_LANE, leaves);
    if (first_warp) {  // their slots are free from the next list on
      const u16 slot = leaves ? rows.slot[mine & ~FRESH] : NO_SLOT;
      const u32 giving = __ballot_sync(EVERY_LANE, slot != NO_SLOT);
      if (giving != 0u) {
        const int free = max(rows.pool.num_free, 0);
        if (slot != NO_SLOT) {
          rows.pool.free_slots[free + __popc(giving & ((1u << lane) - 1u))] = slot;
          rows.slot[mine & ~FRESH] = NO_SLOT;
        }
        __syncwarp();
        if (lane == 0) rows.pool.num_free = free + __popc(giving);
        __syncwarp();
      }
    }
    while (leaving != 0u) {
      Row row[FEW];
      char* to[FEW];
#pragma unroll
      for (int r = 0; r < FEW; ++r) {
        const int k = first + (leaving != 0u ? __ffs(leaving) - 1 : 0);
        to[r] = leaving != 0u ? rows.in_global_memory(entries_t[k].row & ~FRESH) + rows.offset : nullptr;
        row[r].load(entries_t[k].address + rows.offset);  // where none is left, any
        leaving &= leaving - 1u;
      }
#pragma unroll
      for (int r = 0; r < FEW; ++r) {
        row[r].update(learning, gradient);
        if (to[r] != nullptr) row[r].store(to[r]);
      }
    }
  }
  return sum;
}
