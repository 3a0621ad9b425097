/* ready_queue.h - in which order autograd's engine runs what becomes ready at once. */
#ifndef SHARDPLAN_READY_QUEUE_H
#define SHARDPLAN_READY_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

/* A parameter's node (AccumulateGrad), whose sequence number is the greatest. */
enum { READY_QUEUE_PARAM = UINT32_MAX };

/* One node has given gradients to `count` others, whose sequence numbers are these, in the order of
 * its arguments: the higher one comes first. Those that are alike do not keep their order: the
 * queue is libstdc++'s heap (torch/csrc/autograd/engine.cpp, ReadyQueue and CompareNodeTaskTime).
 * order (count): whose turn it is. */
void ready_queue_order(uint32_t count, const uint32_t *numbers, uint32_t *order);

#endif
