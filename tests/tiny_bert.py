"""Writes a folder with a BERT of three narrow layers, random weights and a few words.

torch and transformers are large, so `test_training.py` starts this in an interpreter of its own.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

folder, words = Path(sys.argv[1]), sys.argv[2:]
folder.mkdir()
vocabulary = {word: id for id, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.BertNormalizer()
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)
tokenizer.save(str(folder / "tokenizer.json"))
torch.manual_seed(0)
config = BertConfig(
    vocab_size=len(vocabulary),
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=128,
)
config.to_json_file(folder / "config.json")
weights = BertModel(config, add_pooling_layer=False).state_dict()
# Published weight files contain other tensors, too.
weights["embeddings.position_ids"] = torch.arange(config.max_position_embeddings)
save_file(weights, folder / "model.safetensors")
