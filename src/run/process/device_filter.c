#include "run/process/device_filter.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/must.h"

/* Registers, named by their use; the kernel passes the context in register 1. */
enum { RESULT = BPF_REG_0, CONTEXT = BPF_REG_1, TYPE, MAJOR, MINOR };

enum { INSTRUCTIONS_EACH = 4, INSTRUCTIONS_AROUND = 7 };

static struct bpf_insn load(uint8_t to, size_t member)
{
	return (struct bpf_insn){.code = BPF_LDX | BPF_W | BPF_MEM,
		.dst_reg = to & 0xf,
		.src_reg = CONTEXT,
		.off = (int16_t)member};
}

/* Skips `skipped` instructions if the register has another value. */
static struct bpf_insn skip_unless(uint8_t reg, uint32_t value, int skipped)
{
	return (struct bpf_insn){.code = BPF_JMP | BPF_JNE | BPF_K,
		.dst_reg = reg & 0xf,
		.off = (int16_t)skipped,
		.imm = (int32_t)value};
}

static struct bpf_insn set_result(int allowed)
{
	return (struct bpf_insn){
		.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = RESULT, .imm = allowed};
}

/* Writes the filter; returns the number of its instructions. */
static size_t write_program(struct bpf_insn *program, const dev_t *devices, size_t n)
{
	static const struct bpf_insn leave = {.code = BPF_JMP | BPF_EXIT};
	struct bpf_insn *p = program;

	*p++ = load(MAJOR, offsetof(struct bpf_cgroup_dev_ctx, major));
	*p++ = load(MINOR, offsetof(struct bpf_cgroup_dev_ctx, minor));
	*p++ = load(TYPE, offsetof(struct bpf_cgroup_dev_ctx, access_type));
	/* The upper half has the kind of access. */
	*p++ = (struct bpf_insn){
		.code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = TYPE, .imm = 0xffff};
	*p++ = skip_unless(TYPE, BPF_DEVCG_DEV_CHAR, (int)(INSTRUCTIONS_EACH * n));
	for (size_t i = 0; i < n; i++) {
		*p++ = skip_unless(MAJOR, major(devices[i]), 3);
		*p++ = skip_unless(MINOR, minor(devices[i]), 2);
		*p++ = set_result(0);
		*p++ = leave;
	}
	*p++ = set_result(1);
	*p++ = leave;
	return (size_t)(p - program);
}

/* The parts of the kernel's union that a command does not use must be zero. */
static int call_bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

/* Returns a descriptor of the filter, or -1 and sets errno. */
static int load_filter(const dev_t *devices, size_t n)
{
	struct bpf_insn program[INSTRUCTIONS_EACH * DEVICE_FILTER_MAX + INSTRUCTIONS_AROUND];
	union bpf_attr attr;

	MUST(n <= DEVICE_FILTER_MAX);
	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
	attr.insn_cnt = (uint32_t)write_program(program, devices, n);
	attr.insns = (uintptr_t)program;
	attr.license = (uintptr_t) "";
	return call_bpf(BPF_PROG_LOAD, &attr);
}

bool device_filter_allowed(void)
{
	_cleanup_close_ int fd = load_filter(NULL, 0);

	return fd >= 0;
}

bool device_filter_attach(int group_fd, const dev_t *devices, size_t n)
{
	_cleanup_close_ int fd = load_filter(devices, n);
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.target_fd = (uint32_t)group_fd;
	attr.attach_bpf_fd = (uint32_t)fd;
	attr.attach_type = BPF_CGROUP_DEVICE;
	attr.attach_flags = BPF_F_ALLOW_MULTI;
	if (fd >= 0 && call_bpf(BPF_PROG_ATTACH, &attr) == 0)
		return true;
	log_debug("cannot restrict the devices of a control group: %s", strerror(errno));
	return false;
}
