"""How the embedded base is made: corpus, tokenizer, model, pre-training, MTP head."""
