// Rows of hidden weights w_u: their sum over the active inputs, and their update (Algorithm 3), for one
// thread's UNITS units. Nibbler's answers and the flat networks share this.
//
// LISTS. The active rows of x_t and of x_{t+1} are two lists. What to do with a row is worked out once, by the thread
// that enters it (`RowEntry`), and then done by all threads for their units. `last` is the last step t at which a
// row was active (in x_t): its weights stand at clock last + 1, or at clock t while it is active.
//
// STAGES. Global memory always holds the current rows (weights, then their momentum). The first STAGE_ROWS of each
// list are in shared memory as well, one stage for x_t and one for x_{t+1}: rows that stay active never come from
// global memory again, and the others are fetched all at once. A thread reads and writes its own units only,
// so that no synchronisation is needed here. Rows beyond the stage are loaded BATCH at a time.

constexpr u32 ROW_BYTES = 2u * HIDDEN * sizeof(float);
constexpr u32 NO_ROW = 0xffffffffu;      // an entry without a row
constexpr u32 NOT_STAGED = 0xffffffffu;  // a row that is only in global memory

struct alignas(16) RowEntry {
  u32 offset;  // of the row in global memory, in bytes; NO_ROW: nothing here
  u32 source;  // where the row is staged, in bytes; NOT_STAGED: nowhere
  float lag;   // the weights at clock t are w - lag * m
  u32 done;    // in the list of x_t: the row is in the list of x_{t+1} too, and updated there
  // the update: m' = keep * m + add * gradient, w' = w - direct * m' - lagging * m
  float keep, add, direct, lagging;
};

struct Rows {
  char* first;   // this thread's units of row 0, in global memory
  char* stages;  // this thread's units of the first staged row of stage 0; stage 1 follows
  u32 parity;    // of the stage of x_t

  __device__ __forceinline__ u32 stage_t(int place) const { return (parity * STAGE_ROWS + place) * ROW_BYTES; }
  __device__ __forceinline__ u32 stage_next(int place) const {
    return ((1u - parity) * STAGE_ROWS + place) * ROW_BYTES;
  }
};

// What the thread that enters rows needs to know.
struct RowClock {
  u32* last;    // [rows]
  u16* places;  // [rows] in the list that a row was last in
  const DecayTable& decay;
  float alpha, nu;
  u32 step, parity;
};

// Enter a row into the list of x_{t+1}, or, with FIRST, into that of x_t after a launch began or the list changed.
template <bool FIRST>
__device__ __forceinline__ void enter_row(const RowClock& clock, int row, int place, RowEntry* entries,
                                          RowEntry* entries_t) {
  const u32 last = clock.last[row];
  const bool active_at_t = last == clock.step;
  const u32 gap = active_at_t ? 0u : clock.step - (last + 1u);
  const Decay now = decay_over(clock.decay, clock.nu, gap);
  RowEntry entry = {(u32)row * ROW_BYTES, NOT_STAGED, clock.alpha * now.sum, 0u, now.power, 0.0f, 0.0f, 0.0f};
  const u32 parity = FIRST ? clock.parity : 1u - clock.parity;
  if (place < STAGE_ROWS) entry.source = (parity * STAGE_ROWS + place) * ROW_BYTES;
  if (!FIRST) {
    if (active_at_t) {
      const int place_t = clock.places[row];
      entries_t[place_t].done = 1u;
      if (place < STAGE_ROWS && place_t < STAGE_ROWS)
        entry.source = (clock.parity * STAGE_ROWS + place_t) * ROW_BYTES;
      entry.keep = clock.nu, entry.add = 1.0f - clock.nu, entry.direct = clock.alpha;
    } else {
      const Decay then = decay_over(clock.decay, clock.nu, gap + 1u);
      entry.keep = then.power, entry.lagging = clock.alpha * then.sum;
    }
  }
  entries[place] = entry;
  clock.last[row] = FIRST ? clock.step : clock.step + 1u;
  clock.places[row] = (u16)place;
}

// ---- one row in registers ----

struct Row {
  Units w, m;

  __device__ __forceinline__ void load(const char* address) {
    w = load_units(reinterpret_cast<const float*>(address));
    m = load_units(reinterpret_cast<const float*>(address) + HIDDEN);
  }
  __device__ __forceinline__ void store(char* address) const {
    store_units(reinterpret_cast<float*>(address), w);
    store_units(reinterpret_cast<float*>(address) + HIDDEN, m);
  }
  __device__ __forceinline__ void clear() { w = m = zero_units(); }

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
  // a row of x_t alone
  __device__ __forceinline__ void learn(float alpha, float nu, const Units& gradient) {
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      m.x[u] = nu * m.x[u] + (1.0f - nu) * gradient.x[u];
      w.x[u] -= alpha * m.x[u];
    }
  }
};

__device__ __forceinline__ void add_units(Units& sum, const Units& more) {
#pragma unroll
  for (int u = 0; u < UNITS; ++u) sum.x[u] += more.x[u];
}

// Copies this thread's units of a row from global to shared memory without waiting for them.
__device__ __forceinline__ void fetch_row(char* stage, const char* global) {
  constexpr int BYTES = UNITS >= 4 ? 16 : 4 * UNITS;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int at = 0; at < 4 * UNITS; at += BYTES) {
      const u32 to = (u32)__cvta_generic_to_shared(stage + half * (HIDDEN * 4) + at);
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global + half * (HIDDEN * 4) + at),
                   "n"(BYTES)
                   : "memory");
    }
  }
}

__device__ __forceinline__ void await_fetches() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- what enters the hidden units ----

// The sum of the rows of x_{t+1} at clock t.
__device__ __forceinline__ Units sum_rows(const Rows& rows, const RowEntry* entries, int count) {
  Units sum = zero_units();
  if constexpr (STAGE_ROWS > 0) {
    const int staged = min(count, STAGE_ROWS);
    for (int k = 0; k < staged; ++k) {
      const u32 here = rows.stage_next(k);
      if (entries[k].source == here) fetch_row(rows.stages + here, rows.first + entries[k].offset);
    }
    await_fetches();
#pragma unroll 4
    for (int k = 0; k < staged; ++k) {
      Row row;
      row.load(rows.stages + entries[k].source);
      row.add_to(sum, entries[k].lag);
    }
  }
  for (int k = STAGE_ROWS; k < count; k += BATCH) {
    Row row[BATCH];
    float lag[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int place = min(k + r, count - 1);
      const u32 offset = k + r < count ? entries[place].offset : NO_ROW;
      lag[r] = entries[place].lag;
      row[r].clear();
      if (offset != NO_ROW) row[r].load(rows.first + offset);
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) row[r].add_to(sum, lag[r]);
  }
  return sum;
}

// The same for x_t after a launch began or the list changed: rows that lag are brought to clock t in memory too.
__device__ __noinline__ Units settle_rows(const Rows rows, const RowEntry* entries, int count) {
  Units sum = zero_units();
  for (int k = 0; k < count; k += BATCH) {
    Row row[BATCH];
    RowEntry entry[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      entry[r] = entries[min(k + r, count - 1)];
      if (k + r >= count) entry[r].offset = NO_ROW;
      row[r].clear();
      if (entry[r].offset != NO_ROW) row[r].load(rows.first + entry[r].offset);
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      if (entry[r].offset != NO_ROW) {
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
          row[r].w.x[u] -= entry[r].lag * row[r].m.x[u];
          row[r].m.x[u] *= entry[r].keep;
        }
        row[r].store(rows.first + entry[r].offset);
        if (k + r < STAGE_ROWS) row[r].store(rows.stages + rows.stage_t(k + r));
      }
      add_units(sum, row[r].w);
    }
  }
  return sum;
}

// ---- Algorithm 3 for w_u ----

// Rows of x_t get their gradient; rows of x_{t+1} are brought to clock t + 1 as well. Returns the sum of the rows
// of x_{t+1} at that clock, in the order of the list, so that it equals what settle_rows would find in memory.
__device__ __forceinline__ Units update_rows(const Rows& rows, const RowEntry* entries_t, int count_t,
                                             const RowEntry* entries_next, int count_next, const Units& gradient,
                                             float alpha, float nu) {
  Units sum = zero_units();
  if constexpr (STAGE_ROWS > 0) {
#pragma unroll 4
    for (int k = 0; k < min(count_next, STAGE_ROWS); ++k) {
      const RowEntry entry = entries_next[k];
      Row row;
      row.load(rows.stages + entry.source);
      row.update(entry, gradient);
      add_units(sum, row.w);
      row.store(rows.stages + rows.stage_next(k));
      row.store(rows.first + entry.offset);
    }
    for (int k = 0; k < min(count_t, STAGE_ROWS); ++k) {
      if (entries_t[k].done == 0u) {
        Row row;
        row.load(rows.stages + rows.stage_t(k));
        row.learn(alpha, nu, gradient);
        row.store(rows.first + entries_t[k].offset);
      }
    }
  }
  for (int k = STAGE_ROWS; k < max(count_next, count_t); k += BATCH) {
    Row next[BATCH], old[BATCH];
    u32 to_next[BATCH], to_old[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      to_next[r] = k + r < count_next ? entries_next[k + r].offset : NO_ROW;
      to_old[r] = k + r < count_t && entries_t[k + r].done == 0u ? entries_t[k + r].offset : NO_ROW;
      next[r].clear();
      old[r].clear();
      if (to_next[r] != NO_ROW) next[r].load(rows.first + to_next[r]);
      if (to_old[r] != NO_ROW) old[r].load(rows.first + to_old[r]);
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      if (to_next[r] != NO_ROW) {
        next[r].update(entries_next[k + r], gradient);
        next[r].store(rows.first + to_next[r]);
      }
      add_units(sum, next[r].w);
      if (to_old[r] != NO_ROW) {
        old[r].learn(alpha, nu, gradient);
        old[r].store(rows.first + to_old[r]);
      }
    }
  }
  return sum;
}
