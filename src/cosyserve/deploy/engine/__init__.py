"""TensorRT-LLM engines of the speech LM and TensorRT plans of the flow and the speaker encoder."""
