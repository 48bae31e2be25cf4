"""A BERT of Hugging Face, from a config and without a download, trained by AM in their `Trainer`."""

import tempfile

from transformer import sentences
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

import altmin
from altmin.integrations.transformers import AltMinTrainer

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CONFIG = BertConfig(vocab_size=20, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES)
RUN = {"num_train_epochs": 3, "per_device_train_batch_size": 50, "max_grad_norm": 0, "report_to": "none"}


class Bert(BertForSequenceClassification):
    def forward(self, input_ids, attention_mask):  # layer after layer, so that it is cut between them
        x, mask = self.bert.embeddings(input_ids), attention_mask[:, None, None, :]
        for layer in self.bert.encoder.layer:
            x = layer(x, mask)
        return self.classifier(self.bert.pooler(x))


def data():
    x, y = sentences()
    return [{"input_ids": t, "attention_mask": m, "labels": k} for t, m, k in zip(*x.values(), y, strict=True)]


def main(seed=0):
    set_seed(seed)
    am = altmin.AltMin(Bert(CONFIG), weights=altmin.LocalAdam(lr=0.003))
    with tempfile.TemporaryDirectory() as folder:
        trainer = AltMinTrainer(am, TrainingArguments(folder, seed=seed, **RUN), train_dataset=data())
        trainer.train()
        predictions, labels, _ = trainer.predict(data())
    return (predictions.argmax(1) == labels).mean()


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
