"""judgekit in SkyRL.

    from judgekit_skyrl import register, make_generator

    register(config="reward.yaml")              # inside SkyRL's Ray entrypoint task
    generator = make_generator()(...)           # replaces SkyRLGymGenerator
    trainer = make_trainer()(...)               # replaces RayPPOTrainer

Or, without writing code: `python -m judgekit_skyrl.main environment.skyrl_gym.judgekit.config=reward.yaml …`
(with the package skyrl-train: `judgekit_skyrl.main_train`).
Imports only skyrl_gym; SkyRL itself is imported when a generator or the entrypoint is made.
"""

from judgekit_skyrl.env import JudgeKitEnv, register
from judgekit_skyrl.generator import JudgeKitGeneratorMixin, make_generator
from judgekit_skyrl.trainer import JudgeKitTrainerMixin, make_trainer

__all__ = [
    "JudgeKitEnv",
    "JudgeKitGeneratorMixin",
    "JudgeKitTrainerMixin",
    "make_generator",
    "make_trainer",
    "register",
]
