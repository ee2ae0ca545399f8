// The discovery warps: select_cumulants (Algorithm 5), in one block. While the questions look forward, all of them may help
// the main warps with what would follow each action.

__device__ void discovery_warps(Shared& shared, char* apart, const State& state, const Environment& env,
                                const Scalars& scalars, int run, int part, u32 num_steps) {
  const int rank = threadIdx.x - 32 * (ALL_QUESTION_WARPS + MAIN_WARPS), lane = rank % 32;
  const int board_rank = MAIN_BOARD_THREADS + rank;
  Transitions<BOARD_THREADS> transitions;
  if (DISCOVERY_HELPS) transitions.draw_words(scalars.seed, scalars.step + 1, board_rank);
  auto forward = [&](u32 i) {
    if (DISCOVERY_HELPS) transitions.foresee(env, shared.boards, shared.foreseen, board_rank);
    barrier_1();
    if (DISCOVERY_HELPS) transitions.draw_words(scalars.seed, scalars.step + i + 2, board_rank);
  };
  if (part != DISCOVERY_PART) {
    group_sync<THREADS>(0);
    for (u32 i = 0; i < num_steps; ++i) {
      forward(i);
      barrier_2();
    }
    return;
  }
#if DISCOVERY_APART
  DiscoveryShared& s = *reinterpret_cast<DiscoveryShared*>(apart);
#else
  DiscoveryShared& s = shared.discovery;
#endif
  float* global_weights = state.discovery + (size_t)run * FEATURES;
  float* global_momentum = LINEAR_MOMENTUM ? state.discovery_momentum + (size_t)run * FEATURES : nullptr;
#if DISCOVERY_SHARED
  float* weights = s.weights;
#else
  float* weights = global_weights;
#endif
#if LINEAR_MOMENTUM && DISCOVERY_SHARED
  float* momentum = s.momentum;
#else
  float* momentum = global_momentum;
#endif
#if DISCOVERY_SHARED
  for (int f = rank; f < FEATURES; f += DISCOVERY_THREADS) {
    weights[f] = global_weights[f];
    if (LINEAR_MOMENTUM) momentum[f] = global_momentum[f];
  }
#endif
  const Column<1> column = {weights};
  Selection& selection = s.selection;
  selection.selected.clear(rank, DISCOVERY_THREADS);
  group_sync<DISCOVERY_THREADS>(DISCOVERY_BARRIER);
  for (int question = rank; question < QUESTIONS; question += DISCOVERY_THREADS) {
    const int cumulant = state.cumulants[(size_t)run * QUESTIONS + question];
    s.cumulants[question] = (Feature)cumulant;
    selection.selected.add(cumulant);
  }
  group_sync<DISCOVERY_THREADS>(DISCOVERY_BARRIER);
  bound_blocks<DISCOVERY_THREADS>(column, selection, rank, DISCOVERY_BARRIER);
  if (rank < 32) find_extremes(column, s.cumulants, scalars.cumulant_threshold, selection, lane);

  u64 swaps = 0;
  // The choice of step t depends on the weights after step t - 1: it is made then, by the first warp, and posted with
  // step t.
  auto decide = [&](u32 parity) {
    if (rank >= 32) return;
    const Extremes e = selection.extremes;
    if (!incremental_top_k(e, scalars.cumulant_threshold)) {
      if (lane == 0) shared.cumulant_change[parity] = 0u;
      return;
    }
    for (int question = lane; question < QUESTIONS; question += 32)
      if (s.cumulants[question] == e.low) shared.cumulant_change[parity] = encode_change(question, e.high);
  };
  decide(0);
  group_sync<THREADS>(0);
  for (u32 i = 0; i < num_steps; ++i) {
    forward(i);
    const Slot* active = shared.active[i % 3];
    float sum[1] = {0.0f};
#pragma unroll
    for (int c = 0; c < chunks<DISCOVERY_THREADS>(); ++c) {
      const int feature = feature_at<DISCOVERY_THREADS>(active, c, rank);
      if (feature >= 0) sum[0] += weights[feature];
    }
    warp_sums(sum, lane);
    const u32 change = shared.cumulant_change[i & 1];
    if (lane == 0) s.sums[rank / 32] = sum[0];
    group_sync<DISCOVERY_THREADS>(DISCOVERY_BARRIER);
    if (change != 0u) {
      if (rank == 0) {
        s.cumulants[changed_question(change)] = (Feature)changed_feature(change);
        follow_swap(selection);
      }
      ++swaps;
      group_sync<DISCOVERY_THREADS>(DISCOVERY_BARRIER);
    }
    const float reward = (float)summed_reward(shared);
    float prediction = 0.0f;
#pragma unroll
    for (int w = 0; w < DISCOVERY_WARPS; ++w) prediction += s.sums[w];
    update_linear<DISCOVERY_THREADS, 1>(weights, momentum, active, shared.present[i % 3], {{reward - prediction}}, 1,
                                        scalars.alpha_linear, scalars.linear_nu, rank,
                                        [&](int) -> Selection& { return selection; });
    group_sync<DISCOVERY_THREADS>(DISCOVERY_BARRIER);
    renew_extremes<DISCOVERY_THREADS>(column, s.cumulants, scalars.cumulant_threshold, selection, rank,
                                      DISCOVERY_BARRIER);
    decide((i + 1) & 1);
    barrier_2();
  }
  group_sync<DISCOVERY_THREADS>(DISCOVERY_BARRIER);
#if DISCOVERY_SHARED
  for (int f = rank; f < FEATURES; f += DISCOVERY_THREADS) {
    global_weights[f] = weights[f];
    if (LINEAR_MOMENTUM) global_momentum[f] = momentum[f];
  }
#endif
  if (rank == 0) state.cumulant_swaps[run] += swaps;
}
