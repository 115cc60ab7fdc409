/* A stand-in for libnvidia-ml.so.1, driven by a text file, for tests and for trying Outrider without GPUs.
 *
 * OUTRIDER_FAKE_NVML names the file. It is read at each call; a line is `KEY VALUE` with a whole number as value, where KEY is
 * `count`, or `gpuN.NAME`, or `gpu.NAME` for all GPUs. Special names: `lost` 1 (the GPU answers GPU_IS_LOST), `hang` 1 (calls on
 * the GPU do not return while it stands), `broken` CODE (calls return that code), `xid` CODE with `xid_serial` N (an event, told
 * once for each new N). `init` CODE is what nvmlInit answers. A name that the file does not hold is NOT_SUPPORTED.
 * Prototypes: NVIDIA's public NVML API reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OK 0
#define INVALID 2
#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7
#define TIMEOUT 10
#define LOST 15
#define GPUS 16
#define ABSENT -9223372036854775807LL

typedef struct { int index; } Gpu;
static Gpu gpus[GPUS];
static long long told[GPUS];

/* The file's lines, read again when another file stands at its path (it is always replaced, never changed in place). */
#define LINES 4096
static struct { char name[64]; long long value; } lines[LINES];
static int line_count;
static struct stat seen;

static void refresh(void) {
    const char *path = getenv("OUTRIDER_FAKE_NVML");
    struct stat now;
    FILE *file;
    if (!path || stat(path, &now)) { line_count = 0; return; }
    if (now.st_ino == seen.st_ino && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_mtim.tv_sec == seen.st_mtim.tv_sec) return;
    if (!(file = fopen(path, "r"))) return;
    seen = now;
    for (line_count = 0; line_count < LINES; line_count++)
        if (fscanf(file, "%63s %lld", lines[line_count].name, &lines[line_count].value) != 2) break;
    fclose(file);
}

/* What the file held when it was last looked at: each call of the API looks once (`look`, `state`), not each value. */
static long long held(const char *key) {
    for (int i = line_count - 1; i >= 0; i--)
        if (!strcmp(lines[i].name, key)) return lines[i].value;
    return ABSENT;
}

static long long look(const char *key) {
    refresh();
    return held(key);
}

static long long of(Gpu *gpu, const char *name) {
    char key[128];
    long long value;
    snprintf(key, sizeof key, "gpu%d.%s", gpu->index, name);
    value = held(key);
    if (value != ABSENT) return value;
    snprintf(key, sizeof key, "gpu.%s", name);
    return held(key);
}

static int state(Gpu *gpu) {
    refresh();
    while (of(gpu, "hang") == 1) { usleep(20000); refresh(); }
    if (of(gpu, "lost") == 1) return LOST;
    return of(gpu, "broken") == ABSENT ? OK : (int)of(gpu, "broken");
}

static int number(Gpu *gpu, const char *name, unsigned *out) {
    int code = state(gpu);
    long long value = of(gpu, name);
    if (code) return code;
    if (value == ABSENT) return NOT_SUPPORTED;
    *out = (unsigned)value;
    return OK;
}

static int wide(Gpu *gpu, const char *name, unsigned long long *out) {
    int code = state(gpu);
    long long value = of(gpu, name);
    if (code) return code;
    if (value == ABSENT) return NOT_SUPPORTED;
    *out = (unsigned long long)value;
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    long long code = look("init");
    (void)flags;
    for (int i = 0; i < GPUS; i++) gpus[i].index = i;
    return code == ABSENT ? OK : (int)code;
}
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    long long value = look("count");
    *count = value == ABSENT ? 0 : (unsigned)value;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **out) {
    if (index >= GPUS) return INVALID;
    *out = &gpus[index];
    refresh();
    return of(*out, "lost") == 1 ? LOST : OK;
}
int nvmlDeviceGetUUID(Gpu *gpu, char *out, unsigned size) {
    int code = state(gpu);
    long long node = look("node");
    snprintf(out, size, "GPU-%08lld-0000-0000-0000-%012d", node == ABSENT ? 0 : node, gpu->index);
    return code;
}
int nvmlDeviceGetSerial(Gpu *gpu, char *out, unsigned size) {
    int code = state(gpu);
    snprintf(out, size, "165000%04d", gpu->index);
    return code;
}
typedef struct {
    char old_id[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char id[32];
} Pci;
int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *out) {
    int code = state(gpu);
    memset(out, 0, sizeof *out);
    out->bus = 0x1b + 0x10 * (unsigned)gpu->index;
    snprintf(out->id, sizeof out->id, "00000000:%02X:00.0", out->bus);
    return code;
}
int nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *out) { (void)sensor; return number(gpu, "temp_c", out); }
int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *out) { return number(gpu, "power_mw", out); }
int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *out) { return number(gpu, "power_limit_mw", out); }
int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned kind, unsigned *out) { (void)kind; return number(gpu, "sm_mhz", out); }
int nvmlDeviceGetMaxClockInfo(Gpu *gpu, unsigned kind, unsigned *out) { (void)kind; return number(gpu, "sm_mhz_max", out); }
int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *out) { return wide(gpu, "throttle", out); }
typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *out) { out->memory = 0; return number(gpu, "util", &out->gpu); }
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *out) {
    int code = wide(gpu, "memory", &out->total);
    if (!code) code = wide(gpu, "memory_used", &out->used);
    out->free = out->total - out->used;
    return code;
}
int nvmlDeviceGetMemoryErrorCounter(Gpu *gpu, unsigned type, unsigned scope, unsigned place, unsigned long long *out) {
    char name[64];
    snprintf(name, sizeof name, "ecc.%s.%s.%s", scope ? "aggregate" : "volatile", type ? "uncorrected" : "corrected",
             place == 2 ? "dram" : place == 7 ? "sram" : "other");
    return wide(gpu, name, out);
}
int nvmlDeviceGetRemappedRows(Gpu *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    int code = number(gpu, "remap.corrected", corrected);
    if (!code) code = number(gpu, "remap.uncorrected", uncorrected);
    if (!code) code = number(gpu, "remap.pending", pending);
    return code ? code : number(gpu, "remap.failed", failed);
}
int nvmlDeviceGetRetiredPages(Gpu *gpu, unsigned cause, unsigned *count, unsigned long long *pages) {
    unsigned have;
    int code = number(gpu, cause ? "retired.double_bit" : "retired.single_bit", &have);
    if (code) return code;
    if (have && (!pages || *count < have)) { *count = have; return INSUFFICIENT_SIZE; }
    for (unsigned i = 0; i < have; i++) pages[i] = i;
    *count = have;
    return OK;
}
int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *out) {
    char name[64];
    int code = state(gpu);
    long long links = of(gpu, "nvlinks");
    if (code) return code;
    if (links == ABSENT || link >= (unsigned)links) return NOT_SUPPORTED;
    snprintf(name, sizeof name, "nvlink%u.down", link);
    *out = of(gpu, name) != 1;
    return OK;
}
int nvmlDeviceGetNvLinkErrorCounter(Gpu *gpu, unsigned link, unsigned kind, unsigned long long *out) {
    static const char *names[] = {"replay", "recovery", "crc", "crc_data"};
    char name[64];
    int code = state(gpu);
    if (code || kind > 3) return code ? code : INVALID;
    snprintf(name, sizeof name, "nvlink%u.%s", link, names[kind]);
    *out = of(gpu, name) == ABSENT ? 0 : (unsigned long long)of(gpu, name);
    return OK;
}
int nvmlDeviceGetPcieReplayCounter(Gpu *gpu, unsigned *out) { return number(gpu, "pcie.replay", out); }
int nvmlDeviceGetCurrPcieLinkWidth(Gpu *gpu, unsigned *out) { return number(gpu, "pcie.width", out); }
int nvmlDeviceGetMaxPcieLinkWidth(Gpu *gpu, unsigned *out) { return number(gpu, "pcie.width_max", out); }
int nvmlDeviceGetCurrPcieLinkGeneration(Gpu *gpu, unsigned *out) { return number(gpu, "pcie.gen", out); }
int nvmlDeviceGetMaxPcieLinkGeneration(Gpu *gpu, unsigned *out) { return number(gpu, "pcie.gen_max", out); }
typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute;
} Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, Process *out) {
    unsigned pid = 0;
    int code = state(gpu);
    if (code) return code;
    if (number(gpu, "pid", &pid)) { *count = 0; return OK; }
    if (!out || !*count) { *count = 1; return INSUFFICIENT_SIZE; }
    memset(out, 0, sizeof *out);
    out->pid = pid;
    *count = 1;
    return OK;
}
typedef union { double real; unsigned whole; unsigned long long wide; } Value;
typedef struct {
    unsigned field, scope;
    long long stamp, latency;
    unsigned type;
    int code;
    Value value;
} Field;
int nvmlDeviceGetFieldValues(Gpu *gpu, int count, Field *fields) {
    int code = state(gpu);
    if (code) return code;
    for (int i = 0; i < count; i++) {
        char name[64];
        long long value;
        snprintf(name, sizeof name, "field%u", fields[i].field);
        value = of(gpu, name);
        fields[i].code = value == ABSENT ? NOT_SUPPORTED : OK;
        fields[i].type = 1;
        fields[i].value.wide = value == ABSENT ? 0 : (unsigned long long)value;
    }
    return OK;
}
int nvmlEventSetCreate(void **out) { *out = gpus; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long kinds, void *set) { (void)kinds; (void)set; return state(gpu); }
typedef struct {
    Gpu *gpu;
    unsigned long long kind, data;
    unsigned instance, compute;
} Event;
int nvmlEventSetWait_v2(void *set, Event *out, unsigned timeout) {
    (void)set;
    (void)timeout;
    refresh();
    for (int i = 0; i < GPUS; i++) {
        long long serial = of(&gpus[i], "xid_serial");
        if (serial != ABSENT && serial > told[i]) {
            told[i] = serial;
            memset(out, 0, sizeof *out);
            out->gpu = &gpus[i];
            out->kind = 8;
            out->data = (unsigned long long)of(&gpus[i], "xid");
            return OK;
        }
    }
    return TIMEOUT;
}
