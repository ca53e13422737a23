"""`distserve dev demo`: a local cluster, the chart, a small model, one streamed answer, told step by step."""
