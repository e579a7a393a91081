// Checks of the driver, CUDA's libraries and brim's plug-ins. Libraries are searched as files in the folders of the
// loader and of brim; none is opened.
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor/doctor_int.h"

#define SLOW_ANSWER_S 5.0

//---------------------------------- driver ----------------------------------

// The driver version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue ...": the first word of digits
// with one or two dots.
static bool module_version(const brim_doctor_exam *e, char *out, size_t size) {
  char text[1024];
  if (!brim_doctor_read(e, "/proc/driver/nvidia/version", text, sizeof text)) return false;
  for (char *save = NULL, *word = strtok_r(text, " \t\n", &save); word;
       word = strtok_r(NULL, " \t\n", &save)) {
    size_t digits = strspn(word, "0123456789.");
    if (digits >= 5 && word[digits] == '\0' && strchr(word, '.') && word[0] != '.') {
      snprintf(out, size, "%s", word);
      return true;
    }
  }
  return false;
}

brim_doctor_bus brim_doctor_look_at_bus(const brim_doctor_exam *e) {
  char pattern[BRIM_DOCTOR_PATH], text[64], path[BRIM_DOCTOR_PATH];
  glob_t found = {0};
  snprintf(pattern, sizeof pattern, "%s/sys/bus/pci/devices/*/vendor", e->machine->root);
  if (glob(pattern, 0, NULL, &found) != 0) return BRIM_DOCTOR_BUS_HIDDEN;
  brim_doctor_bus answer = BRIM_DOCTOR_BUS_NONE;
  for (size_t i = 0; i < found.gl_pathc && answer == BRIM_DOCTOR_BUS_NONE; i++) {
    if (!brim_machine_read_text("", found.gl_pathv[i], text, sizeof text)) continue;
    if (!brim_str_starts(text, "0x10de")) continue;
    snprintf(path, sizeof path, "%.*sclass", (int)(strlen(found.gl_pathv[i]) - strlen("vendor")),
             found.gl_pathv[i]);
    if (!brim_machine_read_text("", path, text, sizeof text)) continue;
    if (brim_str_starts(text, "0x03")) answer = BRIM_DOCTOR_BUS_GPU;
  }
  globfree(&found);
  return answer;
}

static void driver_is_missing(brim_doctor_exam *e) {
  char module[64];
  const char *why = e->no_gpus;
  brim_doctor_line *line;
  brim_doctor_bus bus = brim_doctor_look_at_bus(e);
  if (e->wsl) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s", brim_tr("not found; see WSL2 below"));
    brim_doctor_because(line, brim_tr("NVML: %s"), why);
    brim_doctor_fix(line, "%s", brim_tr("in PowerShell: wsl --update, then wsl --shutdown"));
  } else if (module_version(e, module, sizeof module)) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD,
                           brim_tr("kernel module %s is loaded, but NVML cannot be used: %s"),
                           module, why);
    brim_doctor_fix(
        line, "%s",
        brim_tr("in a container: docker run --gpus all (NVIDIA Container Toolkit); after a "
                "driver update: reboot"));
  } else if (bus == BRIM_DOCTOR_BUS_GPU) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s",
                           brim_tr("none, though the PCI bus has an NVIDIA GPU"));
    brim_doctor_fix(
        line, "%s",
        brim_tr("sudo apt-get install nvidia-driver (Debian) or sudo ubuntu-drivers install "
                "(Ubuntu); in a container: docker run --gpus all"));
  } else if (bus == BRIM_DOCTOR_BUS_NONE) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("none; without a GPU none is needed"));
  } else {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN,
                    brim_tr("no driver is visible (%s), and neither is the PCI bus"), why);
  }
}

// Warns about a slow driver, which makes every program that uses the GPU start slowly.
static void driver_is_slow(brim_doctor_exam *e) {
  const brim_doctor_gpus *gpus = e->machine->gpus;
  brim_doctor_line *line =
      gpus
          ? brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("%s; it took %.0f s to answer"),
                            gpus->driver, gpus->seconds)
          : brim_doctor_say(e, BRIM_DOCTOR_BAD,
                            brim_tr("it has not answered for %.0f s; what it would say is unknown"),
                            e->machine->waited_s);
  brim_doctor_because(line, "%s",
                      brim_tr("A driver that starts the GPU for every program, or that hangs, "
                              "delays each start."));
  brim_doctor_fix(line, "%s",
                  brim_tr("sudo nvidia-smi -pm 1 keeps the driver loaded; where nvidia-smi hangs, "
                          "too: dmesg | grep -i xid, then reboot"));
}

static void check_driver(brim_doctor_exam *e) {
  const brim_doctor_gpus *gpus = e->machine->gpus;
  char module[64] = "";
  if (!gpus) {
    driver_is_slow(e);
    return;
  }
  if (!gpus->opened) {
    driver_is_missing(e);
    return;
  }
  const char *driver = gpus->driver;
  int cuda = gpus->cuda;
  if (!driver[0]) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s", brim_tr("NVML does not report its version"));
    return;
  }
  if (!e->wsl && module_version(e, module, sizeof module) && strcmp(module, driver) != 0) {
    brim_doctor_line *line = brim_doctor_say(
        e, BRIM_DOCTOR_BAD, brim_tr("libraries %s, but the kernel module is %s"), driver, module);
    brim_doctor_fix(line, "%s",
                    brim_tr("reboot, or: sudo rmmod nvidia_uvm nvidia && sudo modprobe nvidia"));
    return;
  }
  if (gpus->seconds > SLOW_ANSWER_S) {
    driver_is_slow(e);
  } else if (cuda > 0) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("%s, runs CUDA up to %d.%d"), driver, cuda / 1000,
                    cuda % 1000 / 10);
  } else {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", driver);
  }
}

//---------------------------------- folders of libraries ----------------------------------

enum { MAX_FOLDERS = 96, MAX_COPIES = 16 };

typedef struct folders {
  char *path[MAX_FOLDERS];  // owned; with the root
  size_t count;
} folders;

static void add_folder(folders *f, const char *path) {
  char *real = realpath(path, NULL);
  const char *name = real ? real : path;
  bool known = !brim_fs_is_dir(path) || f->count == MAX_FOLDERS;
  for (size_t i = 0; i < f->count && !known; i++) known = brim_fs_same(f->path[i], name);
  if (!known && (f->path[f->count] = brim_strdup(path))) f->count++;
  free(real);
}

static void add_glob(const brim_doctor_exam *e, folders *f, const char *prefix,
                     const char *pattern) {
  char text[BRIM_DOCTOR_PATH];
  glob_t found = {0};
  if (!prefix || prefix[0] != '/' || strpbrk(prefix, "*?[\\")) return;
  int n = snprintf(text, sizeof text, "%s%s%s", e->machine->root, prefix, pattern);
  if (n < 0 || (size_t)n >= sizeof text || glob(text, 0, NULL, &found) != 0) return;
  for (size_t i = 0; i < found.gl_pathc; i++) add_folder(f, found.gl_pathv[i]);
  globfree(&found);
}

// Adds each entry of a list like PATH. With `bin` adds the folder above each entry that ends with /bin, and no other
// entry.
static void add_list(const brim_doctor_exam *e, folders *f, const char *list, bool bin,
                     const char *pattern) {
  for (const char *at = list ? list : ""; *at;) {
    size_t n = strcspn(at, ":");
    char prefix[BRIM_DOCTOR_PATH];
    bool suits = !bin || (n > 4 && memcmp(at + n - 4, "/bin", 4) == 0);
    snprintf(prefix, sizeof prefix, "%.*s", (int)(bin && n > 4 ? n - 4 : n), at);
    if (suits && n > 0) add_glob(e, f, prefix, pattern);
    at += n + (at[n] == ':');
  }
}

// Adds the folders in ldconfig's configuration.
static void add_configured(const brim_doctor_exam *e, folders *f) {
  char pattern[BRIM_DOCTOR_PATH], text[4096];
  glob_t found = {0};
  snprintf(pattern, sizeof pattern, "%s/etc/ld.so.conf.d/*.conf", e->machine->root);
  if (glob(pattern, 0, NULL, &found) != 0) return;
  for (size_t i = 0; i < found.gl_pathc; i++) {
    if (!brim_machine_read_text("", found.gl_pathv[i], text, sizeof text)) continue;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
      if (line[0] == '/') add_glob(e, f, line, "");
    }
  }
  globfree(&found);
}

static void find_folders(const brim_doctor_exam *e, folders *f) {
  static const char *const python[] = {"/lib/python3*/site-packages/nvidia/*/lib",
                                       "/lib/python3*/dist-packages/nvidia/*/lib"};
  static const char *const system[] = {"/usr/local/cuda/lib64",
                                       "/usr/local/cuda/extras/CUPTI/lib64",
                                       "/usr/lib/x86_64-linux-gnu",
                                       "/usr/lib/aarch64-linux-gnu",
                                       "/usr/lib64",
                                       "/usr/lib/wsl/lib",
                                       "/usr/local/lib"};
  memset(f, 0, sizeof *f);
  add_list(e, f, brim_doctor_env(e, "LD_LIBRARY_PATH"), false, "");
  add_configured(e, f);
  add_glob(e, f, brim_doctor_env(e, "CUDA_HOME"), "/lib64");
  add_glob(e, f, brim_doctor_env(e, "CUDA_PATH"), "/lib64");
  for (size_t i = 0; i < sizeof system / sizeof *system; i++) add_glob(e, f, system[i], "");
  add_glob(e, f, brim_doctor_env(e, "CONDA_PREFIX"), "/lib");
  for (int i = 0; i < 2; i++) {
    add_glob(e, f, brim_doctor_env(e, "VIRTUAL_ENV"), python[i]);
    add_glob(e, f, brim_doctor_env(e, "CONDA_PREFIX"), python[i]);
    add_list(e, f, brim_doctor_env(e, "PATH"), true, python[i]);
    add_glob(e, f, "/usr/local", python[i]);
  }
}

static void free_folders(folders *f) {
  for (size_t i = 0; i < f->count; i++) brim_free(f->path[i]);
  f->count = 0;
}

//---------------------------------- libraries ----------------------------------

typedef struct copy {
  char path[512];    // without the root
  char version[64];  // "9.12.0", from the file's name
} copy;

// Finds the file of a library in a folder with the longest version in its name.
static bool find_in(const brim_doctor_exam *e, const char *folder, const char *library, copy *out) {
  char pattern[BRIM_DOCTOR_PATH];
  glob_t found = {0};
  size_t longest = 0;
  int n = snprintf(pattern, sizeof pattern, "%s/%s.so.[0-9]*", folder, library);
  if (n < 0 || (size_t)n >= sizeof pattern || glob(pattern, 0, NULL, &found) != 0) return false;
  for (size_t i = 0; i < found.gl_pathc; i++) {
    const char *version = strstr(brim_fs_basename(found.gl_pathv[i]), ".so.") + 4;
    if (version[strspn(version, "0123456789.")] != '\0' || strlen(version) <= longest) continue;
    longest = strlen(version);
    snprintf(out->version, sizeof out->version, "%s", version);
    snprintf(out->path, sizeof out->path, "%s", found.gl_pathv[i] + strlen(e->machine->root));
  }
  globfree(&found);
  return longest > 0;
}

static size_t find_copies(const brim_doctor_exam *e, const char *library, copy out[MAX_COPIES]) {
  folders f;
  size_t n = 0;
  find_folders(e, &f);
  for (size_t i = 0; i < f.count && n < MAX_COPIES; i++)
    n += find_in(e, f.path[i], library, &out[n]);
  free_folders(&f);
  return n;
}

static const struct {
  const char *stem, *name;             // beginning of its file names; its name for the user
  const char *without;                 // a message: what needs the library
  brim_doctor_state missing, several;  // state if it is missing: with one GPU, with several GPUs
} libraries[] = {
    {"libcudart", "CUDA runtime",
     BRIM_N_(
         "brim has its own copy; PyTorch and JAX bring theirs. Your own CUDA programs need it."),
     BRIM_DOCTOR_GOOD, BRIM_DOCTOR_GOOD},
    {"libcublasLt", "cuBLAS", BRIM_N_("Without it brim cannot run linear layers on the GPU."),
     BRIM_DOCTOR_BAD, BRIM_DOCTOR_BAD},
    {"libcudnn", "cuDNN", BRIM_N_("Without it convolutions run on slower kernels of brim's own."),
     BRIM_DOCTOR_WARN, BRIM_DOCTOR_WARN},
    {"libnccl", "NCCL",
     BRIM_N_("Several GPUs exchange gradients through it. One GPU does not need it."),
     BRIM_DOCTOR_GOOD, BRIM_DOCTOR_WARN},
    {"libcupti", "CUPTI",
     BRIM_N_(
         "brim profile and brim bench take kernel times from it. Without it brim profile uses the "
         "engine's own events."),
     BRIM_DOCTOR_WARN, BRIM_DOCTOR_WARN},
};

static const char *install_of(const char *library) {
  if (strcmp(library, "libcudnn") == 0) {
    return brim_tr(
        "pip install nvidia-cudnn-cu13, or apt-get install libcudnn9-cuda-13 from NVIDIA's "
        "repository; then add its folder to LD_LIBRARY_PATH");
  }
  return brim_tr(
      "install the CUDA toolkit (package cuda-toolkit), or add its folder to "
      "LD_LIBRARY_PATH");
}

// True for a library in a Python package, where no other program's loader searches.
static bool is_hidden(const brim_doctor_exam *e, const copy *c) {
  const char *list = brim_doctor_env(e, "LD_LIBRARY_PATH");
  char folder[512];
  snprintf(folder, sizeof folder, "%.*s", (int)(brim_fs_basename(c->path) - c->path - 1), c->path);
  return strstr(c->path, "-packages/") && !(list && strstr(list, folder));
}

static brim_doctor_line *say_found(brim_doctor_exam *e, const copy *c, bool needed) {
  if (!needed || !is_hidden(e, c)) {
    return brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s  %s", c->version, c->path);
  }
  brim_doctor_line *line = brim_doctor_say(
      e, BRIM_DOCTOR_WARN, brim_tr("%s  %s, a package of Python's that brim does not search"),
      c->version, c->path);
  brim_doctor_fix(line, "export LD_LIBRARY_PATH=%.*s:$LD_LIBRARY_PATH",
                  (int)(brim_fs_basename(c->path) - c->path - 1), c->path);
  return line;
}

static void check_libraries(brim_doctor_exam *e) {
  copy copies[MAX_COPIES];
  size_t seen = 0;
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
    size_t n = find_copies(e, libraries[i].stem, copies);
    brim_doctor_state state = e->gpu_count > 1    ? libraries[i].several
                              : e->gpu_count == 1 ? libraries[i].missing
                                                  : BRIM_DOCTOR_GOOD;
    if (n == 0 && e->gpu_count == 0) continue;
    brim_doctor_line *line;
    if (n == 0) {
      line = brim_doctor_say(e, state, "%s", brim_tr("not found"));
      if (state != BRIM_DOCTOR_GOOD) {
        brim_doctor_fix(line, "%s", install_of(libraries[i].stem));
      }
    } else {
      // brim searches CUPTI there too (src/profile/cupti), and has its own runtime
      bool needed = e->gpu_count > 0 && state != BRIM_DOCTOR_GOOD &&
                    strcmp(libraries[i].stem, "libcupti") != 0;
      line = say_found(e, &copies[0], needed);
      seen++;
    }
    brim_doctor_about(line, libraries[i].name);
    brim_doctor_because(line, "%s", brim_tr(libraries[i].without));
  }
  if (seen == 0 && e->gpu_count == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("none found; without a GPU none is needed"));
  }
}

// Compares the version of CUDA's runtime with the newest that the driver runs.
static void check_runtime(brim_doctor_exam *e) {
  copy copies[MAX_COPIES];
  if (!e->machine->gpus || !e->machine->gpus->opened) return;
  int newest = e->machine->gpus->cuda;
  size_t n = find_copies(e, "libcudart", copies);
  if (n == 0) return;
  if (newest == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s",
                    brim_tr("the driver does not report which CUDA it can run"));
    return;
  }
  for (size_t i = 0; i < n; i++) {
    int major = atoi(copies[i].version);
    if (major <= newest / 1000) continue;
    brim_doctor_line *line =
        brim_doctor_say(e, BRIM_DOCTOR_BAD, brim_tr("%s is CUDA %d, the driver runs up to %d.%d"),
                        copies[i].path, major, newest / 1000, newest % 1000 / 10);
    brim_doctor_fix(line, brim_tr("update the driver, or install a CUDA %d toolkit"),
                    newest / 1000);
    return;
  }
  brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("CUDA %s under a driver for %d.%d"),
                  copies[0].version, newest / 1000, newest % 1000 / 10);
}

//---------------------------------- cuDNN ----------------------------------

// True if two versions are equal in all parts that both have: "9" agrees with "9.12.0".
static bool versions_agree(const char *a, const char *b) {
  while (*a && *b && *a == *b) a++, b++;
  return (!*a && (!*b || *b == '.')) || (!*b && *a == '.');
}

// cuDNN opens its parts by name. The loader may find the parts of another installation first, in another version.
static void check_cudnn(brim_doctor_exam *e) {
  static const char *const parts[] = {"libcudnn_graph", "libcudnn_ops", "libcudnn_cnn",
                                      "libcudnn_engines_precompiled", "libcudnn_ops_infer"};
  copy whole[MAX_COPIES], part[MAX_COPIES];
  size_t n = find_copies(e, "libcudnn", whole);
  if (n == 0) return;
  for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
    if (find_copies(e, parts[p], part) == 0 || versions_agree(part[0].version, whole[0].version))
      continue;
    brim_doctor_line *line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s %s, %s %s", whole[0].path,
                                             whole[0].version, part[0].path, part[0].version);
    brim_doctor_fix(line, "%s",
                    brim_tr("keep one installation: put its folder first in LD_LIBRARY_PATH, or "
                            "uninstall the other"));
    return;
  }
  for (size_t i = 1; i < n; i++) {
    if (versions_agree(whole[i].version, whole[0].version)) continue;
    brim_doctor_line *line =
        brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("two versions: %s (%s) and %s (%s)"),
                        whole[0].version, whole[0].path, whole[i].version, whole[i].path);
    brim_doctor_fix(line, "%s",
                    brim_tr("keep one installation: put its folder first in LD_LIBRARY_PATH, or "
                            "uninstall the other"));
    return;
  }
  if (strchr(whole[0].version, '.')) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("%s, one version"), whole[0].version);
  } else {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("%s; the file names show no more"),
                    whole[0].version);
  }
}

//---------------------------------- plug-ins ----------------------------------

static void check_plugins(brim_doctor_exam *e) {
  const brim_registry *registry = e->machine->registry;
  if (!registry) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s", brim_tr("not loaded"));
    return;
  }
  size_t count = brim_registry_plugin_count(registry);
  for (size_t i = 0; i < count; i++) {
    const char *name, *version, *path, *why;
    brim_registry_plugin(registry, i, &name, &version, &path, &why);
    bool matters = strcmp(name, "cuda") != 0 || e->gpu_count > 0;
    brim_doctor_line *line = why ? brim_doctor_say(e, matters ? BRIM_DOCTOR_BAD : BRIM_DOCTOR_GOOD,
                                                   brim_tr("not used: %s"), why)
                                 : brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s  %s", version, path);
    brim_doctor_about(line, name);
  }
  static const char *const wanted[] = {"cuda", "cpu"};
  for (int w = 0; w < 2; w++) {
    bool found = w == 0 && e->gpu_count == 0;
    for (size_t i = 0; i < count && !found; i++) {
      const char *name, *version, *path, *why;
      brim_registry_plugin(registry, i, &name, &version, &path, &why);
      found = strcmp(name, wanted[w]) == 0;
    }
    if (found) continue;
    brim_doctor_line *line = brim_doctor_say(e, w == 0 ? BRIM_DOCTOR_BAD : BRIM_DOCTOR_WARN,
                                             brim_tr("not beside this brim"));
    brim_doctor_about(line, wanted[w]);
    brim_doctor_fix(line, "%s",
                    w == 0
                        ? brim_tr("build brim where nvcc is in PATH or /usr/local/cuda/bin: make")
                        : brim_tr("build brim with oneDNN: make"));
  }
}

const brim_doctor_row brim_doctor_software_rows[] = {
    {"software.driver", BRIM_DOCTOR_GROUP_SOFTWARE, BRIM_N_("NVIDIA driver"),
     BRIM_N_("Without it no program can use the GPU. Its version bounds the CUDA version."),
     check_driver},
    {"software.cuda", BRIM_DOCTOR_GROUP_SOFTWARE, BRIM_N_("CUDA libraries"),
     BRIM_N_("brim opens them at run time, where the loader and CUDA put them."), check_libraries},
    {"software.cuda_match", BRIM_DOCTOR_GROUP_SOFTWARE, BRIM_N_("CUDA and driver"),
     BRIM_N_("A CUDA runtime of a newer major version than the driver's finds no device."),
     check_runtime},
    {"software.cudnn_match", BRIM_DOCTOR_GROUP_SOFTWARE, BRIM_N_("cuDNN versions"),
     BRIM_N_("cuDNN opens parts of itself by name. Parts of another version fail with "
             "CUDNN_STATUS_NOT_INITIALIZED or a version mismatch."),
     check_cudnn},
    {"software.plugin", BRIM_DOCTOR_GROUP_SOFTWARE, BRIM_N_("brim plug-ins"),
     BRIM_N_("cuda computes on the GPU, cpu on the processor. Without them brim uses the slow "
             "reference backend."),
     check_plugins},
    {0}};
