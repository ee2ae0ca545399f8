"""How every agent turns action values into an action."""

import numpy as np

WORD = 2**32


def exploration_threshold(epsilon: float) -> int:
    """The number below which a random 32-bit word means: explore. At epsilon 1 every word does."""
    return round(epsilon * WORD)


def greedy(action_values: np.ndarray) -> int:
    """The action of the largest value; the lowest one on ties."""
    return int(np.argmax(action_values))


def epsilon_greedy(action_values: np.ndarray, epsilon: float, words: np.ndarray) -> int:
    """The greedy action, or a uniformly random one with probability epsilon, decided by two random words."""
    if int(words[0]) < exploration_threshold(epsilon):
        return (int(words[1]) * len(action_values)) >> 32
    return greedy(action_values)
