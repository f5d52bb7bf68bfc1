"""How the demo model is made: its grammar, its tokenizer, its training and its export.

`tools/train_demo_model.py` is the command. Nothing here is needed to serve the model.
"""
