"""The speech tokenizer and the speaker encoder out of published ONNX files."""
