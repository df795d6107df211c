// SPDX-License-Identifier: Apache-2.0
#include "probe/kvm.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "probe/tasks.hpp"
#include "sys/deadline.hpp"

namespace sandbox::probe {

#if defined(__x86_64__)

namespace {

// Guest-physical layout, below 64 KiB. Intel SDM vol. 3: 4-level paging 4.5, IDT gates 6.14.1.
constexpr std::size_t kMemory = 0x10000;
// Page tables, descriptor tables and code in pages of their own, so that a stray write hits only
// one.
constexpr std::uint64_t kPml4 = 0x1000;
constexpr std::uint64_t kPdpt = 0x2000;
constexpr std::uint64_t kPageDirectory = 0x3000;
constexpr std::uint64_t kGdt = 0x4000;
constexpr std::uint64_t kIdt = 0x5000;
constexpr std::uint64_t kCode = 0x6000;
constexpr std::uint64_t kHandler = 0x6100;
constexpr std::uint64_t kStackTop = 0x9000;
constexpr std::uint16_t kPort = 0xE9;  // Bochs' debug port: no device of KVM's answers there
constexpr unsigned kSoftInterrupt = 0x20;

// int3; int 0x20; mov ecx, 1000000; 1: dec ecx; jnz 1b; mov al, 'K'; out 0xe9, al; hlt
constexpr unsigned char kGuestCode[] = {0xCC, 0xCD, kSoftInterrupt, 0xB9, 0x40, 0x42,
                                        0x0F, 0x00, 0xFF,           0xC9, 0x75, 0xFC,
                                        0xB0, 'K',  0xE6,           0xE9, 0xF4};
// push rax; mov al, 'I'; out 0xe9, al; pop rax; iretq
constexpr unsigned char kHandlerCode[] = {0x50, 0xB0, 'I', 0xE6, 0xE9, 0x58, 0x48, 0xCF};
constexpr std::string_view kWanted = "IIK";

void put64(unsigned char* memory, std::uint64_t at, std::uint64_t value)
{
    std::memcpy(memory + at, &value, sizeof value);
}

void put_gate(unsigned char* memory, unsigned vector)
{
    // Present 64-bit interrupt gate, code selector 8; the handler lies below 64 KiB.
    constexpr std::uint64_t kGate = 0x8E00ULL << 32 | 8ULL << 16;
    put64(memory, kIdt + vector * 16ULL, kGate | kHandler);
    put64(memory, kIdt + vector * 16ULL + 8, 0);
}

// Long mode without any firmware: tables and code are in place before the vCPU first runs, so
// nothing but the instructions under test has to work.
void write_guest(unsigned char* memory)
{
    put64(memory, kPml4, kPdpt | 3);           // present, writable
    put64(memory, kPdpt, kPageDirectory | 3);
    put64(memory, kPageDirectory, 0x83);       // one 2 MiB page, identity
    put64(memory, kGdt + 8, 0x00AF9A000000FFFF);   // 64-bit code
    put64(memory, kGdt + 16, 0x00CF92000000FFFF);  // data
    put_gate(memory, 3);
    put_gate(memory, kSoftInterrupt);
    std::memcpy(memory + kCode, kGuestCode, sizeof kGuestCode);
    std::memcpy(memory + kHandler, kHandlerCode, sizeof kHandlerCode);
}

// Types of segment descriptors (Intel SDM vol. 3, 3.4.5.1).
enum class SegmentKind : std::uint8_t { data = 3, code = 11 };  // read-write; execute-read

kvm_segment segment(std::uint16_t selector, SegmentKind kind)
{
    kvm_segment value{};
    value.limit = 0xFFFFFFFF;
    value.selector = selector;
    value.type = static_cast<std::uint8_t>(kind);
    value.present = 1;
    // s: a code or data segment; g: the limit counts pages of 4 KiB.
    value.s = 1;
    value.g = 1;
    value.l = kind == SegmentKind::code ? 1 : 0;
    value.db = kind == SegmentKind::code ? 0 : 1;
    return value;
}

bool enter_long_mode(int vcpu, std::string& problem)
{
    kvm_sregs special{};
    if (ioctl(vcpu, KVM_GET_SREGS, &special) != 0) {
        problem = errno_text("KVM_GET_SREGS");
        return false;
    }
    special.cs = segment(8, SegmentKind::code);
    special.ds = special.es = special.fs = special.gs = special.ss = segment(16, SegmentKind::data);
    // Intel SDM vol. 3, 26.3.1.2: the guest's TR must be a busy TSS.
    special.tr.type = 11;  // busy 64-bit TSS: VMX refuses to enter without one
    special.tr.present = 1;
    special.tr.limit = 0x67;
    // Limits are sizes less one: three descriptors of 8 bytes, 33 gates of 16.
    special.gdt = {kGdt, 23, {}};
    special.idt = {kIdt, (kSoftInterrupt + 1) * 16 - 1, {}};
    special.cr3 = kPml4;
    // CR4.PAE and EFER.LME with CR0.PG make long mode (Intel SDM vol. 3, 9.8.5).
    special.cr4 = 1U << 5;            // PAE
    special.cr0 = 1U << 31 | 1U << 5 | 1U << 4 | 1;  // PG, NE, ET, PE
    special.efer = 1U << 8 | 1U << 10;               // LME, LMA
    kvm_regs registers{};
    registers.rip = kCode;
    registers.rsp = kStackTop;
    // Bit 1 is always one (Intel SDM vol. 1, 3.4.3).
    registers.rflags = 2;
    if (ioctl(vcpu, KVM_SET_SREGS, &special) != 0)
        problem = errno_text("KVM_SET_SREGS");
    else if (ioctl(vcpu, KVM_SET_REGS, &registers) != 0)
        problem = errno_text("KVM_SET_REGS");
    return problem.empty();
}

// struct kvm_cpuid2 of linux/kvm.h as the kernel has it: in C++ the header's flexible array makes it
// larger, and the numbers of its ioctls, which hold the size, are then others.
struct FeaturesHead {
    std::uint32_t count = 0;
    std::uint32_t padding = 0;
};
// virt/kvm/api.rst, 4.46: E2BIG where KVM has more; kernels of today fill some sixty.
constexpr std::uint32_t kFeatures = 256;
struct Features {
    FeaturesHead head;
    kvm_cpuid_entry2 entries[kFeatures] = {};
};
constexpr unsigned long kGetFeatures = _IOWR(KVMIO, 0x05, FeaturesHead);
constexpr unsigned long kSetFeatures = _IOW(KVMIO, 0x90, FeaturesHead);

// A vCPU that nobody told what it is has no long mode: KVM takes a state only if CPUID has the features
// for it. All that this KVM can give, as any VMM does it.
bool give_features(int kvm, int vcpu, std::string& problem)
{
    const auto features = std::make_unique<Features>();
    features->head.count = kFeatures;
    if (ioctl(kvm, kGetFeatures, features.get()) != 0)
        problem = errno_text("KVM_GET_SUPPORTED_CPUID");
    else if (ioctl(vcpu, kSetFeatures, features.get()) != 0)
        problem = errno_text("KVM_SET_CPUID2");
    return problem.empty();
}

struct Guest {
    int vcpu = -1;
    kvm_run* run = nullptr;
};

// Descriptors and memory end with the disposable child.
Guest make_guest(const std::string& device, std::string& problem)
{
    Guest guest;
    const int kvm = open(device.c_str(), O_RDWR | O_CLOEXEC);
    if (kvm < 0) {
        problem = errno_text(fmt::format("open {}", device));
        return guest;
    }
    // 12 since Linux 2.6.22 and for ever (virt/kvm/api.rst, 4.1).
    const int version = ioctl(kvm, KVM_GET_API_VERSION, 0);
    if (version != KVM_API_VERSION) {
        problem = version < 0 ? errno_text("KVM_GET_API_VERSION")
                              : fmt::format("KVM API version {}, wanted 12", version);
        return guest;
    }
    const int machine = ioctl(kvm, KVM_CREATE_VM, 0);
    if (machine < 0) {
        problem = errno_text("KVM_CREATE_VM");
        return guest;
    }
    // Intel without unrestricted guest needs these three pages; elsewhere the call may fail.
    static_cast<void>(ioctl(machine, KVM_SET_TSS_ADDR, 0xFFFBD000UL));
    void* memory = mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                        0);
    if (memory == MAP_FAILED) {
        problem = errno_text("mmap guest memory");
        return guest;
    }
    // Before the region is registered: the guest starts with everything in place.
    write_guest(static_cast<unsigned char*>(memory));
    kvm_userspace_memory_region region{};
    region.memory_size = kMemory;
    region.userspace_addr = reinterpret_cast<std::uint64_t>(memory);
    if (ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) != 0) {
        problem = errno_text("KVM_SET_USER_MEMORY_REGION");
        return guest;
    }
    guest.vcpu = ioctl(machine, KVM_CREATE_VCPU, 0);
    // The shared page with exit reasons, and more behind it.
    const int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (guest.vcpu < 0 || size <= 0) {
        problem = errno_text("KVM_CREATE_VCPU");
        return guest;
    }
    if (!give_features(kvm, guest.vcpu, problem)) return guest;
    void* run = mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED,
                     guest.vcpu, 0);
    if (run == MAP_FAILED)
        problem = errno_text("mmap vCPU");
    else
        guest.run = static_cast<kvm_run*>(run);
    return guest;
}

// Empty: it is there to interrupt.
void on_alarm(int) {}

// A repeating timer: one signal that came just before KVM_RUN would not end it (virt/kvm/api.rst,
// 4.10).
void start_alarm(std::chrono::milliseconds limit)
{
    struct sigaction action{};
    action.sa_handler = on_alarm;  // no SA_RESTART: KVM_RUN returns EINTR
    sigaction(SIGALRM, &action, nullptr);
    itimerval timer{};
    timer.it_value.tv_sec = limit.count() / 1000;
    timer.it_value.tv_usec = limit.count() % 1000 * 1000;
    // 5 ms: often enough for the shortest limit.
    timer.it_interval.tv_usec = 5000;
    setitimer(ITIMER_REAL, &timer, nullptr);
}

// /sys says which module serves /dev/kvm; a doctor's reader needs the name to believe the gap.
std::string module_note()
{
    return access("/sys/module/kvm_pvm", F_OK) == 0 ? " (kvm_pvm host)" : "";
}

// How far it came, in the words of the guest's code above.
std::string stage(const std::string& output)
{
    if (output.empty()) return "at int3";
    if (output == "I") return "at int 0x20";
    if (output == "II") return "in the loop";
    return "after the last output";
}

std::string describe_exit(const kvm_run& run, const std::string& output)
{
    if (run.exit_reason == KVM_EXIT_INTERNAL_ERROR) {
        return fmt::format("KVM_EXIT_INTERNAL_ERROR suberror {} {}", run.internal.suberror,
                           stage(output));
    }
    // What a real fault of a broken KVM looks like.
    if (run.exit_reason == KVM_EXIT_SHUTDOWN) return "triple fault " + stage(output);
    return fmt::format("KVM exit reason {} {}", run.exit_reason, stage(output));
}

// The only success is all three bytes and then HLT; every other exit is told as it came.
Finding drive(const Guest& guest, std::chrono::milliseconds limit)
{
    std::string output;
    const auto end = sys::Deadline::after(limit);
    // From here on ioctl() is interrupted, again and again.
    start_alarm(limit);
    // Bounded by the output: a guest that prints for ever is no success.
    while (output.size() <= kWanted.size()) {
        if (ioctl(guest.vcpu, KVM_RUN, 0) != 0) {
            if (errno != EINTR) return missing_errno("KVM_RUN");
            if (!end.passed()) continue;
            return missing(fmt::format("guest not done after {} ms, {}{}", limit.count(),
                                       stage(output), module_note()));
        }
        const kvm_run& run = *guest.run;
        if (run.exit_reason == KVM_EXIT_IO && run.io.direction == KVM_EXIT_IO_OUT &&
            run.io.port == kPort && run.io.size == 1) {
            // One byte: the size was checked just above.
            output += reinterpret_cast<const char*>(&run)[run.io.data_offset];
            continue;
        }
        if (run.exit_reason != KVM_EXIT_HLT) {
            return missing(describe_exit(run, output) + module_note());
        }
        if (output != kWanted) {
            return missing(fmt::format("guest halted after \"{}\", wanted \"{}\"{}", output,
                                       kWanted, module_note()));
        }
        return found("yes", "long-mode guest took int3 and int 0x20, looped, printed and halted");
    }
    return missing(
        fmt::format("guest printed \"{}\", wanted \"{}\"{}", output, kWanted, module_note()));
}

}  // namespace

Finding run_kvm_guest(const std::string& device, std::chrono::milliseconds limit)
{
    std::string problem;
    const Guest guest = make_guest(device, problem);
    if (problem.empty() && guest.run != nullptr) enter_long_mode(guest.vcpu, problem);
    if (!problem.empty()) return missing(problem + module_note());
    return drive(guest, limit);
}

#else

Finding run_kvm_guest(const std::string& device, std::chrono::milliseconds)
{
    return missing(fmt::format("{}: the guest of this probe is written for x86_64 only", device));
}

#endif

namespace {

// A guest under nested SVM needs up to 25 ms; a kvm_pvm host fails within 3 or hangs.
// For the guest alone: a real KVM takes 10 ms, a nested one on a busy processor hundreds.
constexpr std::chrono::milliseconds kGuestLimit{1000};

}  // namespace

// In a child like every check: a kvm_pvm host may hang in KVM_RUN.
Task kvm_task(const ProbeSettings& settings)
{
    Task task;
    task.label = "kvm guest";
    task.names = {facts::name::kKvm};
    task.body = [device = settings.kvm_device](const Reporter& out) {
        out.report(facts::name::kKvm, run_kvm_guest(device, kGuestLimit));
    };
    return task;
}

}  // namespace sandbox::probe
