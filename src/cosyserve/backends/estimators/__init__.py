"""The flow's estimator and the speaker encoder as graphs for other runtimes: ONNX files, TensorRT
engines."""
