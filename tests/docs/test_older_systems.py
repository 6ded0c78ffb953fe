"""The page for users of rlpyt, pl_bolts and lightning_baselines3: no option of theirs is left out, no name of ours is made up."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from ale_py.vector_env import AtariVectorEnv

from sb_dqn.actors import OverlappedActors, ProcessActors
from sb_dqn.algorithms import ALGORITHMS, DQN, PQN, VPG
from sb_dqn.buffers.prioritized_sampler import Prioritized
from sb_dqn.callbacks import CheckpointCallback, EvalCallback
from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.envs import Monitor, StreamOptions, make_atari_env, make_vec_env
from sb_dqn.evaluation import evaluate_policy
from sb_dqn.exploration.config import KEYS
from sb_dqn.logger import configure
from sb_dqn.nn import HadamaxCNN, ImpalaCNN, NatureCNN
from sb_dqn.nn.layers.linear import Noisy
from sb_dqn.objectives.bootstrap import Munchausen
from sb_dqn.policies import OPTIMIZER_KEYS, QPolicy, RecurrentQPolicy
from sb_dqn.runs.settings_syntax import constructor_defaults
from sb_dqn.schedules import Linear
from tests.docs.pages import FOLDER, QUOTED, rows_of, section_of
from tests.tiny import Tiny, quick

PAGE = FOLDER / "coming-from-older-systems.md"

OPTIONS = {
    "## rlpyt: DQN": """discount batch_size min_steps_learn delta_clip replay_size replay_ratio target_update_tau
        target_update_interval n_step_return learning_rate OptimCls optim_kwargs initial_optim_state_dict clip_grad_norm
        eps_steps double_dqn prioritized_replay pri_alpha pri_beta_init pri_beta_final pri_beta_steps default_priority
        ReplayBufferCls updates_per_sync mid_batch_reset loss gradNorm tdAbsErr""",
    "## rlpyt: CategoricalDQN": "V_min V_max n_atoms",
    "## rlpyt: R2D1": """discount batch_T batch_B warmup_T store_rnn_state_interval min_steps_learn delta_clip replay_size
        replay_ratio target_update_interval n_step_return learning_rate clip_grad_norm double_dqn prioritized_replay
        pri_alpha pri_beta_init pri_beta_final pri_beta_steps pri_eta default_priority input_priorities
        input_priority_shift value_scale_eps eps_steps ReplayBufferCls updates_per_sync""",
    "## rlpyt: epsilon": "eps_init eps_final eps_final_min eps_itr_min eps_itr_max eps_eval",
    "## rlpyt: networks": """AtariDqnModel AtariCatDqnModel AtariR2d1Model DuelingHead DistributionalDueling dueling fc_sizes
        use_maxpool channels kernel_sizes strides paddings initial_model_state_dict RunningMeanStd""",
    "## rlpyt: replay": "n_step_return unique input_priorities input_priority_shift",
    "## rlpyt: samplers, runners, log": """SerialSampler CpuSampler GpuSampler EnvCls env_kwargs batch_B batch_T CollectorCls
        max_decorrelation_steps TrajInfoCls eval_n_envs eval_env_kwargs eval_CollectorCls eval_max_steps
        eval_max_trajectories MinibatchRl MinibatchRlEval SyncRl AsyncRl n_steps seed affinity cuda_idx workers_cpus
        master_cpus master_torch_threads worker_torch_threads set_affinity alternating all_cpus log_interval_steps
        log_traj_window run_experiments progress.csv debug.log params.json params.pkl itr_N.pkl snapshot_mode Iteration
        CumTime CumSteps CumCompletedTrajs CumUpdates StepsPerSecond UpdatesPerSecond ReplayRatio CumReplayRatio
        NewCompletedTrajs StepsInTrajWindow StepsInEval TrajsInEval CumEvalTime CumTrainTime SamplerIteration OptThrottle
        NonEvalSamplesPerSecond Length Return NonzeroRewards DiscountedReturn GameScore""",
    "## rlpyt: Atari": """game frame_skip num_img_obs clip_reward episodic_lives fire_on_reset max_start_noops
        repeat_action_probability horizon game_score traj_done""",
    "## pl_bolts: Reinforce, VanillaPolicyGradient": """env gamma lr num_batch_episodes batch_size n_steps avg_reward_len
        entropy_beta epoch_len""",
    "## pl_bolts: DQN, DoubleDQN, DuelingDQN, NoisyDQN, PERDQN": """env eps_start eps_end eps_last_frame sync_rate gamma
        learning_rate batch_size replay_size warm_start_size avg_reward_len min_episode_reward seed batches_per_epoch
        n_steps beta_frames total_reward avg_reward train_loss episodes episode_steps avg_test_reward CNN DuelingCNN
        NoisyCNN MLP DuelingMLP ReplayBuffer MultiStepBuffer PERBuffer MeanBuffer ExperienceSource
        DiscountedExperienceSource Buffer ValueAgent""",
    "## lightning_baselines3: DQN": """forward forward_target update_target predict on_step configure_optimizers env eval_env
        num_eval_episodes verbose support_multi_env seed use_sde batch_size buffer_length warmup_length train_freq
        episodes_per_rollout num_rollouts gradient_steps gamma squashed_actions sde_sample_freq use_sde_at_warmup
        target_update_interval save_hyperparameters val_reward_mean val_reward_std val_lengths_mean val_lengths_std
        Monitor make_vec_env env_checker DummyVecEnv SubprocVecEnv VecFrameStack VecCheckNan VecVideoRecorder
        RMSpropTFLike polyak_update""",
    "## SAC of all three": """discount batch_size learning_rate min_steps_learn replay_size replay_ratio target_update_tau
        target_update_interval n_step_return fixed_alpha target_entropy action_prior reward_scale reparameterize
        clip_grad_norm bootstrap_timelimit action_squash pretrain_std target_alpha sync_rate policy_learning_rate
        q_learning_rate warm_start_size eps_start entropy_coef train_freq num_rollouts squashed""",
}
"""What those systems document and take, by section of the page."""

LOGGED = {
    "train/loss", "train/grad_norm", "train/q_mean", "train/td_error", "train/n_updates", "time/total_timesteps", "time/time_elapsed",
    "time/episodes", "time/fps", "time/iterations", "rollout/ep_rew_mean", "rollout/ep_len_mean", "eval/mean_reward",
    "eval/mean_ep_length", "train/policy_loss", "train/entropy_loss",
}  # fmt: skip
ELSEWHERE = {
    "progress.csv", "config.yaml", "evaluations.npz", "*.monitor.csv", "check_env", "taskset", "terminal", "last", "None",
    "torchrun", "model.rank", "model.world_size",
}  # fmt: skip
"""Files, and what belongs to others."""


MAKERS = (make_vec_env, make_atari_env, evaluate_policy)


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def known_names() -> set[str]:
    """Keywords, attributes and log keys that may stand in the column `Here`."""
    found: set[str] = set(LOGGED) | ELSEWHERE | set(OPTIMIZER_KEYS) | {"policy_kwargs", "env"}
    for algorithm in ALGORITHMS.values():
        found |= constructor_defaults(algorithm).keys()
    functions = (
        *MAKERS, BaseAlgorithm.learn, BaseAlgorithm.predict, BaseAlgorithm.load,
        EvalCallback.__init__, CheckpointCallback.__init__, Monitor.__init__, QPolicy.__init__,
        RecurrentQPolicy.__init__, NatureCNN.__init__,
        ImpalaCNN.__init__, HadamaxCNN.__init__,
    )  # fmt: skip
    for function in functions:
        found |= parameters(function)
    for settings in (OverlappedActors, ProcessActors, Prioritized, Noisy, Munchausen, StreamOptions):
        found |= {field.name for field in fields(settings)}
    for keys in KEYS.values():
        found |= set(keys)
    return found


@pytest.mark.parametrize("heading", OPTIONS)
def test_no_option_is_left_out(heading: str) -> None:
    named = " ".join(QUOTED.findall(section_of(PAGE, heading)))
    words = set(re.findall(r"[\w.]+", named))
    assert [option for option in OPTIONS[heading].split() if option not in words] == []


def column_here() -> list[str]:
    """Cells of the column that names what is ours: the second of every table."""
    text = PAGE.read_text(encoding="utf-8").split("\n## rlpyt: DQN\n", 1)[1]
    return [row[1] for row in rows_of(text)]


def plain_names(cells: list[str]) -> set[str]:
    """`buffer_size`, `train/loss`, but not `loss="mse"`."""
    return {name for cell in cells for name in QUOTED.findall(cell) if re.fullmatch(r"[a-z_*./]+\w", name)}


def keywords_with_values(cells: list[str]) -> set[str]:
    """`loss` of `loss="mse"`, `alpha` of `prioritized_replay={"alpha": 0.6}`."""
    code = " ".join(text for cell in cells for text in QUOTED.findall(cell))
    return set(re.findall(r"(?<![\w.])([a-z]\w*)=", code)) | set(re.findall(r"\"(\w+)\":", code))


def test_every_name_of_ours_exists() -> None:
    callable_names = {name for name, _ in inspect.getmembers(BaseAlgorithm)} | {
        function.__name__ for function in MAKERS
    }
    assert sorted(plain_names(column_here()) - known_names() - callable_names) == []


def test_every_keyword_shown_with_a_value_exists() -> None:
    of_atari = parameters(AtariVectorEnv.__init__)  # what `env_kwargs` may hold
    of_schedules = {field.name for field in fields(Linear)}
    assert sorted(keywords_with_values(column_here()) - known_names() - of_atari - of_schedules) == []


def test_what_is_said_to_be_logged_is_logged(tmp_path: Path) -> None:
    columns: set[str] = set()
    for algorithm in (DQN, PQN, VPG):
        model = quick(algorithm=algorithm)
        model.set_logger(configure(str(tmp_path / algorithm.__name__), ["csv"]))
        model.learn(150, callback=EvalCallback(Tiny(), n_eval_episodes=1, eval_freq=50, verbose=0), log_interval=1)
        model.logger.close()
        with (tmp_path / algorithm.__name__ / "progress.csv").open() as file:
            columns |= set(file.readline().strip().split(","))
    assert LOGGED - columns == set()


def test_made_up_names_would_be_noticed() -> None:
    cells = [
        "`buffer_size`, `replay_rate`",
        'by `exploration={"ladder": "log", "rungs": 3}`, `sigma=2`, `eps_eval=0.1`',
    ]
    assert plain_names(cells) - known_names() == {"replay_rate"}
    assert keywords_with_values(cells) - known_names() == {"rungs", "eps_eval"}


def test_what_is_missing_is_said() -> None:
    text = section_of(PAGE, "## Not yet")
    for word in ("alternating", "TD3"):
        assert word in text
