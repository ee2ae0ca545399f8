// Nibbler (Algorithms 1 to 7) and its environment as one persistent kernel: thousands of steps per launch.
//
// THREADS. A run has BLOCKS blocks, block `part` of it QUESTIONS_PER_BLOCK questions. The warps of a block:
//   QUESTIONS_PER_BLOCK groups of QUESTION_WARPS warps, one group per question; a thread keeps UNITS hidden
//     units of it (their v heads in registers) and is the only one that touches their weights, but for new random ones;
//   MAIN_WARPS warps that keep the clock: the meeting of the blocks, the choice of the action, and meanwhile the
//     first of them has the base features of the main learner, the others (if any) the environment;
//   DISCOVERY_WARPS warps that help with the environment and, in one block only, select the cumulants: in part 0, or, with
//     DISCOVERY_APART, in one block more, which has no questions, so that the questions have the room of the discovery weights.
//
// ONE STEP, given x_t, a_t and x_{t+1} in shared memory:
//   forward   questions: hidden units of x_{t+1} (those of x_t are known), all dot products.
//             meanwhile main: base features; main and discovery: x_{t+2} for every action that A_{t+1} may be.
//                                                                                              [barrier 1]
//   learn     questions: update_answers, select_inputs. discovery: select_cumulants.
//             meanwhile main: post partial sums, await all blocks', choose A_{t+1} and with it x_{t+2}.
//                                                                                              [barrier 2]
//   main      questions: update_main for their units; a question whose cumulant changed starts anew.
// The way from one action to the next is: forward, barrier 1, meeting, barrier 2. What is in `learn` hides behind
// the meeting.
//
// MEMORY. Per question in shared memory: support weights over all features (in global memory if SUPPORT_SHARED is 0, see
// nibbler_support.cuh), q heads (but for their momentum if Q_MOMENTUM_SHARED is 0), the lists of active rows, and, behind the struct `Shared`, the rows of w_u that are
// active (5 to 20 of 82, 2 KB each with their momentum) as far as they fit; the others are in global memory. See rows.cuh.

constexpr int QUESTION_THREADS = 32 * QUESTION_WARPS;
constexpr int MAIN_THREADS = 32 * MAIN_WARPS;
constexpr int DISCOVERY_THREADS = 32 * DISCOVERY_WARPS;
constexpr int MAIN_BOARD_THREADS = MAIN_WARPS > 1 ? MAIN_THREADS - 32 : 32;  // of the main warps, those with the environment
// The discovery warps help them to foresee if that saves a trip: two boards of a thread are on one.
__host__ __device__ constexpr int foreseeing_trips(int threads) { return divide_up(ACTIONS * BOARDS, 2 * threads); }
constexpr bool DISCOVERY_HELPS =
    foreseeing_trips(MAIN_BOARD_THREADS + DISCOVERY_THREADS) < foreseeing_trips(MAIN_BOARD_THREADS);
constexpr int BOARD_THREADS = MAIN_BOARD_THREADS + (DISCOVERY_HELPS ? DISCOVERY_THREADS : 0);  // all that foresee
constexpr int ALL_QUESTION_WARPS = QUESTIONS_PER_BLOCK * QUESTION_WARPS;
constexpr int ALL_QUESTION_THREADS = 32 * ALL_QUESTION_WARPS;
constexpr int THREADS = 32 * (ALL_QUESTION_WARPS + MAIN_WARPS + DISCOVERY_WARPS);
// named barriers, beside 0 for the whole block
constexpr int MAIN_BARRIER = 1, DISCOVERY_BARRIER = 2, QUESTION_BARRIER = 3 /* + question */, ALL_QUESTIONS_BARRIER = 15;
static_assert(QUESTION_BARRIER + QUESTIONS_PER_BLOCK <= ALL_QUESTIONS_BARRIER, "a block has 16 barriers");

constexpr int ROWS = INPUTS + HIDDEN_BIAS;
constexpr int DISCOVERY_PART = DISCOVERY_APART ? BLOCKS - 1 : 0;
constexpr int DRAWS_PER_ROW = divide_up(HIDDEN_USED, 4);
constexpr int OWN_FEATURES = divide_up(FEATURES, BLOCKS);  // base features per block
constexpr int HEADS = 1 + ACTIONS;                         // of the main learner over base features: v, q_a
constexpr int HEAD_LANES = power_of_two_from(HEADS), OWN_AT_ONCE = 32 / HEAD_LANES;
static_assert(HEADS <= 32, "one lane per head");

// sums over a question's or a block's units
enum { ANSWER_V_T, ANSWER_Q_T, ANSWER_V_NEXT, SUPPORT_T, SUPPORT_NEXT, CUMULANT_NEXT, MAIN_SUMS };
enum { MAIN_V_T, MAIN_Q_T, MAIN_V_NEXT, MAIN_Q_NEXT };  // + action
constexpr int NUM_MAIN = MAIN_Q_NEXT + ACTIONS;
constexpr int NUM_SUMS = power_of_two_from(MAIN_SUMS + NUM_MAIN);
constexpr int LANES_PER_LETTER = 32 / power_of_two_from(NUM_MAIN);
constexpr int LETTER_STRIDE = letter_stride(LANES_PER_LETTER);
constexpr int LETTERS = NUM_MAIN + 1;  // what a block posts: its main sums, and DISCOVERY_PART the change of a cumulant

// questions of a block whose support weights lie side by side
constexpr int SIDE_BY_SIDE = SUPPORT_SHARED ? 1 : power_of_two_from(QUESTIONS_PER_BLOCK);

struct State {  // device arrays with a leading axis over runs; units are padded to HIDDEN
  float* hidden;                            // [QUESTIONS][ROWS][2][HIDDEN] weights, momentum
  u32* hidden_last;                         // [QUESTIONS][ROWS]
  int* inputs;                              // [QUESTIONS][INPUTS]
  int* cumulants;                           // [QUESTIONS]
  float *answer_v, *answer_v_momentum;      // [QUESTIONS][HIDDEN]
  float *answer_q, *answer_q_momentum;      // [QUESTIONS][ACTIONS][HIDDEN]
  float *main_v, *main_v_momentum;          // [QUESTIONS][HIDDEN]
  float *main_q, *main_q_momentum;          // [ACTIONS][QUESTIONS][HIDDEN]
  float *base, *base_momentum;              // [HEADS][FEATURES]
  u32* base_touched;                        // [HEADS][FEATURES]
  float *support, *support_momentum;        // [QUESTIONS / SIDE_BY_SIDE][FEATURES][SIDE_BY_SIDE], by blocks
  float *discovery, *discovery_momentum;    // [FEATURES]
  int* states;                              // [BOARDS]
  u64* action_counts;                       // [ACTIONS]
  u64* input_swaps;                         // [QUESTIONS]
  u64* active_rows;                         // [QUESTIONS] sum over steps of the active rows
  double* answer_error;                     // [QUESTIONS]
  u64* cumulant_swaps;                      // [1]
  u64* active_features;                     // [1] sum over steps
  double* main_error;                       // [1]
  Decay* decay;                             // [DECAY_LOW + DECAY_HIGH]
};

struct Control {  // of one step; two alternate
  int action;     // a_t
  float error_v, error_q;
  u32 cumulant_change;
};

struct QuestionShared {
  alignas(16) float answer_q[ACTIONS][HIDDEN], main_q[ACTIONS][HIDDEN];
  float answer_q_momentum[Q_MOMENTUM_SHARED ? ACTIONS : 1][Q_MOMENTUM_SHARED ? HIDDEN : 4];
  float main_q_momentum[Q_MOMENTUM_SHARED ? ACTIONS : 1][Q_MOMENTUM_SHARED ? HIDDEN : 4];
  float support[SUPPORT_SHARED ? FEATURES : 1], support_momentum[SUPPORT_SHARED && LINEAR_MOMENTUM ? FEATURES : 1];
  RowEntry entries[2][round_up(ROWS + 1, BATCH)];  // active rows of x_t and x_{t+1}, and one that is swapped in
  u32 last[ROWS];
  u16 slot[ROWS];
  RowPool pool;
  Feature inputs[INPUTS];
  int counts[QUESTION_WARPS];  // of active rows
  u16 listed[INPUTS];
  struct {
    int input;
    bool active;  // in x_{t+1}
  } swapped;      // of this step, if any
  Selection selection;
};

struct DiscoveryShared {
#if DISCOVERY_SHARED
  float weights[FEATURES];
#if LINEAR_MOMENTUM
  float momentum[FEATURES];
#endif
#endif
  Feature cumulants[QUESTIONS];
  Selection selection;
  float sums[DISCOVERY_WARPS];
};

struct Shared {
  QuestionShared questions[QUESTIONS_PER_BLOCK];
#if !DISCOVERY_APART
  DiscoveryShared discovery;
#endif
  alignas(16) float sums[2][ALL_QUESTION_WARPS][NUM_SUMS];  // of even and odd steps
  float support_sums[ALL_QUESTION_WARPS][2 * SIDE_BY_SIDE];  // of x_t, then of x_{t+1}, if not SUPPORT_SHARED
  Weights<SIDE_BY_SIDE> support_errors;
  float base_sums[NUM_MAIN];
  double rewards[MAIN_WARPS];  // parts of R_{t+1}
  u32 letters[LETTERS * LETTER_STRIDE];
  u32 cumulant_change[2];  // decided by discovery for the step of that parity
  Control control[2];
  Slot active[3][SLOTS];  // x_t, x_{t+1}, x_{t+2} in turn
  FeatureSet present[3];  // the same as sets
  Boards boards;
  Foreseen foreseen;  // x_{t+2} for every A_{t+1}
  DecayTable decay;
  float base[HEADS][OWN_FEATURES], base_momentum[HEADS][OWN_FEATURES];
  u32 base_touched[HEADS][OWN_FEATURES];
  u16 own_active[2][OWN_FEATURES];  // of x_t and x_{t+1}
};

// The barriers of a step, for all threads of the block.
__device__ __forceinline__ void barrier_1() { group_sync_twice<THREADS>(0); }
__device__ __forceinline__ void barrier_2() { group_sync<THREADS>(0); }

// R_{t+1} in the order of the warps, after barrier 1.
__device__ __forceinline__ double summed_reward(const Shared& shared) {
  double reward = 0.0;
#pragma unroll
  for (int w = 0; w < MAIN_WARPS; ++w) reward += shared.rewards[w];
  return reward;
}

// A change of cumulant as one word: 0 is none.
__device__ __forceinline__ u32 encode_change(u32 question, u32 feature) {
  return 0x80000000u | (question << 18) | feature;
}
__device__ __forceinline__ u32 changed_question(u32 change) { return (change >> 18) & 0x1fffu; }
__device__ __forceinline__ u32 changed_feature(u32 change) { return change & 0x3ffffu; }
