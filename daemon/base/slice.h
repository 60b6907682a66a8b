/* How long the calling thread may keep a core before others that wait get their turn (Linux 6.12
 * and later: the slice of SCHED_NORMAL; elsewhere these calls change nothing). Shares of the cores
 * stay what they are; only who waits for whom changes. Where trainers and daemons share cores, a
 * vote or an answer must not queue behind an update that nobody waits for yet: threads that pass
 * messages ask for short turns, an update for long ones, and a short turn comes before a long one.
 */
#ifndef ZD_BASE_SLICE_H
#define ZD_BASE_SLICE_H

enum slice { SLICE_NORMAL, SLICE_SHORT, SLICE_LONG };

/* Of the calling thread. Another policy than SCHED_NORMAL, a user's choice, is left alone. */
void slice_take(enum slice s);

#endif
