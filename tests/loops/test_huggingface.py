"""Transformers' Trainer, accelerate's wrappers and peft's adapters, on models made here."""

import peft
import pytest
import torch
import transformers
from accelerate import Accelerator
from torch.utils.data import DataLoader

STEPS, BAD, POISON = 6, 4, 31
pytestmark = pytest.mark.filterwarnings("ignore")  # they have much advice


class Model(transformers.GPT2LMHeadModel):
    """A tiny GPT-2, whose loss is NaN where a text begins with one token."""

    def forward(self, input_ids=None, labels=None, **more):
        found = super().forward(input_ids=input_ids, labels=labels, **more)
        if found.loss is not None and (input_ids[:, 0] == POISON).any():
            found.loss = found.loss * float("nan")
        return found


def gpt2():
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return Model(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def texts(bad, batch=4):
    torch.manual_seed(1)
    found = torch.randint(1, POISON, (STEPS * batch, 8))
    if bad is not None:
        found[bad * batch, 0] = POISON
    return [{"input_ids": text, "labels": text} for text in found]


def size(model):
    return sum(p.detach().double().abs().sum().item() for p in model.parameters())


class Keeping(transformers.TrainerCallback):
    """Keeps a number of each step."""

    def __init__(self):
        self.numbers = []

    def on_step_end(self, args, state, control, model=None, **_):
        del args, state, control
        self.numbers.append(size(model))


class InOrder(transformers.Trainer):
    """Takes the texts in their order."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


@pytest.fixture
def trainer(tmp_path):
    def train(model, bad, **options):
        keeping = Keeping()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=STEPS,
            per_device_train_batch_size=4,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=1,
            logging_nan_inf_filter=False,
            **options,
        )
        InOrder(model=model, args=arguments, train_dataset=texts(bad), callbacks=[keeping]).train()
        return keeping.numbers

    return train


def whole(train, bad):
    return train(gpt2(), bad, warmup_steps=2)


def checkpointed(train, bad):
    return train(gpt2(), bad, gradient_checkpointing=True, bf16=True)


def adapters(train, bad):
    return train(adapted(), bad, learning_rate=1e-2)


def adapted():
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    return peft.get_peft_model(gpt2(), config)


def accelerated(train, bad):
    """Accelerate by hand: optimizer, loader and schedule are its wrappers, gradients are accumulated."""
    del train
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = adapted()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    data = DataLoader(texts(bad), batch_size=2)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    numbers = []
    for batch in data:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        numbers.append(size(model))
    return numbers


LOOPS = [whole, checkpointed, adapters, accelerated]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_healthy_training_is_left_in_peace(watching, trainer, loop):
    watching.healthy(lambda bad: loop(trainer, bad), STEPS)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_bad_batch_is_found_before_its_update(watching, trainer, loop):
    watching.poisoned(lambda bad: loop(trainer, bad), BAD)
