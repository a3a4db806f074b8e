"""The flow's estimator as a graph for other runtimes: ONNX files, TensorRT engines."""
