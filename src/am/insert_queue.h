/*-------------------------------------------------------------------------
 *
 * insert_queue.h
 *	  Entries that wait in memory, and which statements' entries may.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_INSERT_QUEUE_H
#define PMHASH_INSERT_QUEUE_H

#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "cluster/cluster.h"

struct IndexInfo;

/* ---- insert_queue.c ---- */
typedef struct PmhashInsertQueue PmhashInsertQueue;

/* Another one whenever queues may have gone: see pmhash_insert_queue. */
extern uint32 pmhash_queue_generation;

extern void pmhash_insert_queue_init(void);
extern bool pmhash_may_queue(Relation heap, Relation index,
							 struct IndexInfo *indexInfo);
extern PmhashInsertQueue *pmhash_insert_queue(Relation heap, PmhashFile *file);
extern void pmhash_enqueue_insert(PmhashInsertQueue *queue,
								  const PmhEntry *entry);
extern void pmhash_apply_inserts(const PmhashFile *file);
extern void pmhash_queues_apply(int level);
extern void pmhash_queues_to_parent(int level);
extern void pmhash_queues_drop(int level);
extern void pmhash_queues_forget(void);
extern PmhashFile *pmhash_open_for_scan(Relation index, Snapshot snapshot);
extern PmhashFile *pmhash_open_for_reading(Relation index, Snapshot snapshot);

/* ---- insert_source.c ---- */
extern bool pmhash_rows_stay(Relation heap, const struct IndexInfo *indexInfo);
extern bool pmhash_subscriber_looks(Relation heap);

#endif							/* PMHASH_INSERT_QUEUE_H */
