/* A stand-in for libnvidia-ml: devices and failures as a file lists them, read anew at each call.
   Lines: "init CODE", or "ADDRESS TOTAL FREE CODE". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } Memory;

static int find(const char *address, long place, Memory *memory) {
    FILE *file = fopen(getenv("TEST_NVML"), "r");
    char name[64];
    unsigned long long total, free;
    int code, found = 6; /* NVML_ERROR_NOT_FOUND */
    fscanf(file, "init %*d");
    for (long line = 1; fscanf(file, "%63s %llu %llu %d", name, &total, &free, &code) == 4; line++) {
        if (address ? !strcmp(name, address) : line == place) {
            *memory = (Memory){total, free, total - free};
            found = address ? (int)-line : code;
            break;
        }
    }
    fclose(file);
    return found;
}

static int handle(const char *address, void **device) {
    Memory memory;
    int found = find(address, 0, &memory);
    *device = (void *)(long)-found;
    return found < 0 ? 0 : found;
}

int nvmlInitWithFlags(unsigned flags) {
    FILE *file = fopen(getenv("TEST_NVML"), "r");
    int code = 0;
    fscanf(file, "init %d", &code);
    fclose(file);
    return code;
}

const char *nvmlErrorString(int code) { return "as the file says"; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { return handle(uuid, device); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **device) { return handle(place, device); }
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) { return find(NULL, (long)device, memory); }
