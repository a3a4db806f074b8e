"""What listens to a prompt: the S3 speech tokenizer and the CAM++ speaker encoder."""
