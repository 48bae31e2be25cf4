"""The BERT of hugging_face.py in `Trainer` as it is, by backprop."""

import tempfile

from hugging_face import CONFIG, RUN, data
from transformers import BertForSequenceClassification, Trainer, TrainingArguments, set_seed


def main(seed=0):
    set_seed(seed)
    model = BertForSequenceClassification(CONFIG)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, seed=seed, learning_rate=0.003, **RUN)
        trainer = Trainer(model, args, train_dataset=data())
        trainer.train()
        predictions, labels, _ = trainer.predict(data())
    return (predictions.argmax(1) == labels).mean()


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
