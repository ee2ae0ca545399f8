// The environment: any product of finite MDPs, stepped from its tables (nibbler.mdp.simulate is its twin).
//
// One board per thread at a time. Every block of a run steps the whole environment itself from the same
// counter-based draws, so that no observation ever crosses between blocks. A board's active features go
// to BOARD_SLOTS places of its own in the list, -1 where it has fewer, so that no thread waits for another.

struct Outcome {  // 16 bytes, one load
  u32 threshold;
  int next_state;
  double reward;
};

// The outcomes of a state and action, with the likeliest of them inside, so that most transitions are one load.
struct alignas(16) OutcomeRow {
  u32 threshold;   // of the first outcome
  int next_state;  // of the first outcome; REWARDED is set if it has a reward
  int start, last;
};
constexpr int REWARDED = 1 << 30;

struct Environment {
  const int* row_base;       // [BOARDS] first row of the board's component
  const int* observed_base;  // [BOARDS] first state of the board in `observed`
  const OutcomeRow* rows;    // [component, state, action]
  const Outcome* outcomes;
  const int4* observed;  // [board, state][OBSERVED_STRIDE / 4] observed indices of the active features, then -1
};

constexpr int SLOTS = BOARDS * BOARD_SLOTS;
constexpr int OBSERVED_STRIDE = round_up(BOARD_SLOTS, 4);

// `observed_base` and `row_base` are the board's own.
__device__ __forceinline__ void observe_board(const Environment& env, int board, int observed_base, int state,
                                              int* slots) {
  const int4* observed = env.observed + (size_t)(observed_base + state) * (OBSERVED_STRIDE / 4);
#pragma unroll
  for (int i = 0; i < BOARD_SLOTS; i += 4) {
    const int4 four = __ldg(observed + i / 4);
    slots[board * BOARD_SLOTS + i] = four.x;
    if (i + 1 < BOARD_SLOTS) slots[board * BOARD_SLOTS + i + 1] = four.y;
    if (i + 2 < BOARD_SLOTS) slots[board * BOARD_SLOTS + i + 2] = four.z;
    if (i + 3 < BOARD_SLOTS) slots[board * BOARD_SLOTS + i + 3] = four.w;
  }
}

// The board's next state and reward under `action`, drawn with one 32-bit word.
__device__ __forceinline__ double step_board(const Environment& env, int row_base, int& state, int action, u32 word) {
  const int4 row = __ldg(reinterpret_cast<const int4*>(env.rows + row_base + state * ACTIONS + action));
  int k = row.z;
  if (k == row.w || word < (u32)row.x) {
    state = row.y & ~REWARDED;
    return row.y & REWARDED ? env.outcomes[k].reward : 0.0;
  }
  uint4 outcome;
  do {
    outcome = __ldg(reinterpret_cast<const uint4*>(env.outcomes + ++k));
  } while (k < row.w && word >= outcome.x);
  state = (int)outcome.y;
  return __hiloint2double((int)outcome.w, (int)outcome.z);
}
