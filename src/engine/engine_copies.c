// What is kept beside the weights and follows from them: the 16-bit copy, and the average with its
// statistics and its copy.
#include "engine/engine_int.h"

brim_status brim_net_refresh_copy(brim_net *net) {
  if (net->compute == net->master) return BRIM_OK;
  return brim_op_run(net->device, &net->cast_call);
}

brim_status brim_net_start_average(brim_net *net) {
  if (!net->averages) return BRIM_OK;
  net->average_stale = true;
  BRIM_TRY(brim_device_copy(net->device, net->blocks[BRIM_BLOCK_AVERAGE].data,
                            net->blocks[BRIM_BLOCK_PARAMS].data, brim_net_flat_bytes(net),
                            BRIM_COPY_D2D));
  return brim_net_start_statistics(net);
}

brim_status brim_net_start_statistics(brim_net *net) {
  if (!net->statistics_prepared) return BRIM_OK;
  return brim_device_copy(net->device, net->blocks[BRIM_BLOCK_AVERAGE_BUFFERS].data,
                          net->blocks[BRIM_BLOCK_BUFFERS].data,
                          net->blocks[BRIM_BLOCK_BUFFERS].bytes, BRIM_COPY_D2D);
}

void brim_engine_warn_statistics(const char *of) {
  brim_log_warn("engine",
                "%s: the averaged weights have no running statistics (written by an earlier "
                "version); brim uses those of the plain weights",
                of);
}

brim_status brim_net_refresh_average(brim_net *net) {
  if (!net->average_stale || net->compute == net->master) return BRIM_OK;
  BRIM_TRY(brim_op_run(net->device, &net->average_cast_call));
  net->average_stale = false;
  return BRIM_OK;
}
