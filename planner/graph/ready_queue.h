/* ready_queue.h - in which order autograd's engine runs what becomes ready at once. */
#ifndef SHARDPLAN_READY_QUEUE_H
#define SHARDPLAN_READY_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

enum { READY_QUEUE_NO_INPUT = 0x7fffffff };

/* One node has given gradients to `count` parameters, in the order of its arguments, and behind
 * `before` of them to a node of forward (READY_QUEUE_NO_INPUT: to none). All parameters' nodes come
 * before that, as those with the highest number; among themselves they are alike, and the queue is
 * libstdc++'s heap (torch/csrc/autograd/engine.cpp, ReadyQueue and CompareNodeTaskTime; an
 * AccumulateGrad's sequence number is the greatest), which does not keep their order. order
 * (count): whose turn it is. */
void ready_queue_order(uint32_t count, uint32_t before, uint32_t *order);

#endif
