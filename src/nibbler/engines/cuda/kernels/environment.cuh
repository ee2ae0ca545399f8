// The environment: any product of finite MDPs, stepped from its tables (nibbler.mdp.simulate is its twin).
//
// One board per thread at a time. Every block of a run steps the whole environment itself from the same
// counter-based draws, so that no observation ever crosses between blocks. A board's active features go
// to BOARD_SLOTS places of its own in the list, -1 where it has fewer, so that no thread waits for another.
// What would follow each action is worked out before the action is chosen (`foresee`), while others compute its value.

// The outcomes of a state and action, in 64 bytes: most transitions are one trip to memory. Where there are more than
// eight, pairs lead to other blocks, each with a part of them.
constexpr int OUTCOMES = 8;
struct alignas(16) OutcomeBlock {
  int4 pairs[OUTCOMES / 2];  // threshold, next state, threshold, next state
};
constexpr int REWARDED = 1 << 30, LINK = 1 << 29;  // in a next state: it has a reward; it is the number of a block

struct Environment {
  const int* row_base;       // [BOARDS] first row of the board's component
  const int* observed_base;  // [BOARDS] first state of the board in `observed`
  const OutcomeBlock* blocks;  // [component, state, action], then those that are led to
  const double* rewards;       // [block][OUTCOMES]
  const int4* observed;  // [board, state][OBSERVED_STRIDE / 4] observed indices of the active features, then -1
};

constexpr int SLOTS = BOARDS * BOARD_SLOTS;
constexpr int OBSERVED_STRIDE = round_up(BOARD_SLOTS, 4);

#if BOARDS >= 512 && FEATURES < 32768
typedef short Slot;  // an active feature, or -1; there is little room on chip beside so many boards
#else
typedef int Slot;
#endif

#if FEATURES <= 65536
typedef u16 Feature;
#else
typedef u32 Feature;
#endif

// The list of active features in chunks of COUNT slots, one for each thread of a group: thread `rank`'s of chunk `chunk`.
template <int COUNT>
__device__ constexpr int chunks() {
  return divide_up(SLOTS, COUNT);
}
template <int COUNT>
__device__ __forceinline__ int feature_at(const Slot* active, int chunk, int rank) {
  const int slot = chunk * COUNT + rank;
  return slot < SLOTS ? (int)active[slot] : -1;
}

// A set of features, in shared memory: a bit for each.
struct FeatureSet {
  u32 words[divide_up(FEATURES, 32)];

  __device__ __forceinline__ bool has(int feature) const { return words[feature / 32] >> (feature % 32) & 1u; }
  __device__ __forceinline__ void add(int feature) { atomicOr(&words[feature / 32], 1u << (feature % 32)); }
  __device__ __forceinline__ void remove(int feature) { atomicAnd(&words[feature / 32], ~(1u << (feature % 32))); }
  __device__ __forceinline__ void clear(int rank, int count) {
    for (int k = rank; k < divide_up(FEATURES, 32); k += count) words[k] = 0u;
  }
};

struct Observed {  // a board's active features
  int4 fours[OBSERVED_STRIDE / 4];
};

// `observed_base` and `row_base` are the board's own.
__device__ __forceinline__ Observed load_observed(const Environment& env, int observed_base, int state) {
  Observed loaded;
#pragma unroll
  for (int i = 0; i < OBSERVED_STRIDE / 4; ++i)
    loaded.fours[i] = __ldg(env.observed + (size_t)(observed_base + state) * (OBSERVED_STRIDE / 4) + i);
  return loaded;
}

__device__ __forceinline__ void store_observed(const Observed& observed, int board, Slot* slots) {
#pragma unroll
  for (int i = 0; i < BOARD_SLOTS; i += 4) {
    const int4 four = observed.fours[i / 4];
    slots[board * BOARD_SLOTS + i] = (Slot)four.x;
    if (i + 1 < BOARD_SLOTS) slots[board * BOARD_SLOTS + i + 1] = (Slot)four.y;
    if (i + 2 < BOARD_SLOTS) slots[board * BOARD_SLOTS + i + 2] = (Slot)four.z;
    if (i + 3 < BOARD_SLOTS) slots[board * BOARD_SLOTS + i + 3] = (Slot)four.w;
  }
}

__device__ __forceinline__ OutcomeBlock load_outcomes(const Environment& env, int block) {
  OutcomeBlock loaded;
#pragma unroll
  for (int i = 0; i < OUTCOMES / 2; ++i) loaded.pairs[i] = __ldg(env.blocks[block].pairs + i);
  return loaded;
}

// The next state and reward, drawn from a block of outcomes with one 32-bit word.
__device__ __forceinline__ double draw_outcome(const Environment& env, int block, OutcomeBlock outcomes, int& state,
                                               u32 word) {
  while (true) {
    int next = outcomes.pairs[0].y, k = 0;
#pragma unroll
    for (int i = 0; i + 1 < OUTCOMES; ++i) {
      const int4 pair = outcomes.pairs[i / 2], after = outcomes.pairs[(i + 1) / 2];
      if (word >= (u32)(i % 2 == 0 ? pair.x : pair.z)) next = i % 2 == 0 ? after.w : after.y, k = i + 1;
    }
    if (!(next & LINK)) {
      state = next & (LINK - 1);
      return next & REWARDED ? env.rewards[(size_t)block * OUTCOMES + k] : 0.0;
    }
    block = next & (LINK - 1);
    outcomes = load_outcomes(env, block);
  }
}

// The board's next state and reward under `action`.
__device__ __forceinline__ double step_board(const Environment& env, int row_base, int& state, int action, u32 word) {
  const int block = row_base + state * ACTIONS + action;
  return draw_outcome(env, block, load_outcomes(env, block), state, word);
}

// ---- what would follow each action ----

struct Boards {  // in shared memory
  int states[BOARDS], row_base[BOARDS], observed_base[BOARDS];
};

struct Foreseen {  // the next observation, states and rewards for every action; in shared memory
  Slot active[ACTIONS][SLOTS];
  int states[ACTIONS][BOARDS];
  double rewards[ACTIONS][BOARDS];
};

// The boards at the start of a launch and what they show, and the step that the action then taken leads to, with what they
// show after it. By COUNT threads, thread `rank`; returns its part of the reward.
template <int COUNT>
__device__ __forceinline__ double first_step(const Environment& env, Boards& boards, const int* states, u64 seed, u64 step,
                                             int action, Slot* active, Slot* active_next, int rank) {
  double reward = 0.0;
  for (int board = rank; board < BOARDS; board += COUNT) {
    const int row_base = env.row_base[board], observed_base = env.observed_base[board];
    int s = states[board];
    store_observed(load_observed(env, observed_base, s), board, active);
    const uint4 words = draw(seed, STREAM_TRANSITION, step, board / 4);
    reward += step_board(env, row_base, s, action, lane_of(words, board % 4));
    store_observed(load_observed(env, observed_base, s), board, active_next);
    boards.states[board] = s;
    boards.row_base[board] = row_base;
    boards.observed_base[board] = observed_base;
  }
  return reward;
}

// The boards and actions of a thread among COUNT threads, and the words that its transitions are drawn with: actions of
// one board share a word.
template <int COUNT>
struct Transitions {
  static constexpr int ROUNDS = divide_up(ACTIONS * BOARDS, COUNT);
  u32 words[ROUNDS];

  __device__ __forceinline__ void draw_words(u64 seed, u64 step, int rank) {
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
      const int board = (rank + r * COUNT) % BOARDS;
      words[r] = lane_of(draw(seed, STREAM_TRANSITION, step, board / 4), board % 4);
    }
  }

  __device__ __forceinline__ void foresee(const Environment& env, const Boards& boards, Foreseen& foreseen,
                                          int rank) const {
#pragma unroll
    for (int first = 0; first < ROUNDS; first += 2) {  // two boards in flight at once, on each of two trips
      OutcomeBlock outcomes[2];
      Observed observed[2];
      int board[2], a[2], block[2], s[2];
      double rewards[2];
      bool here[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int k = rank + min(first + r, ROUNDS - 1) * COUNT;
        here[r] = first + r < ROUNDS && k < ACTIONS * BOARDS;
        board[r] = k % BOARDS, a[r] = min(k / BOARDS, ACTIONS - 1);
        block[r] = boards.row_base[board[r]] + boards.states[board[r]] * ACTIONS + a[r];
        outcomes[r] = load_outcomes(env, block[r]);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (here[r]) rewards[r] = draw_outcome(env, block[r], outcomes[r], s[r], words[first + r]);
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (here[r]) observed[r] = load_observed(env, boards.observed_base[board[r]], s[r]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (here[r]) {
          store_observed(observed[r], board[r], foreseen.active[a[r]]);
          foreseen.states[a[r]][board[r]] = s[r];
          foreseen.rewards[a[r]][board[r]] = rewards[r];  // last, since it may still be on its way
        }
      }
    }
  }
};

// Of what was foreseen, what the action brings; by COUNT threads, thread `rank`, which returns its part of the reward.
template <int COUNT>
__device__ __forceinline__ double take_foreseen(const Foreseen& foreseen, int action, Boards& boards, int rank) {
  double reward = 0.0;
  for (int board = rank; board < BOARDS; board += COUNT) {
    reward += foreseen.rewards[action][board];
    boards.states[board] = foreseen.states[action][board];
  }
  return reward;
}
