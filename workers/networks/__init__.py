"""Networks as torch and ONNX Runtime load them."""
