// Counters that the toy plug-in shows through its extension "toy.counters".
#ifndef BRIM_TESTS_PLUGIN_TOY_H_
#define BRIM_TESTS_PLUGIN_TOY_H_

typedef struct toy_counters {
  int devices_open, streams, events, syncs, buffers, prepared;
  int waits, event_syncs, graphs, launches;
} toy_counters;

#endif  // BRIM_TESTS_PLUGIN_TOY_H_
