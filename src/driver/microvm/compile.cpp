// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/compile.hpp"

#include <algorithm>
#include <type_traits>

#include "base/diagnostic.hpp"
#include "driver/artifact_json.hpp"
#include "driver/microvm/shares.hpp"

namespace sandbox::driver::microvm {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;
// Mount points only.
constexpr std::uint64_t kServedTreeSize = 1 * kMiB;

// The facts of this kind of machine: TCG gives a guest no x2apic, and wants each feature that
// Debian's kernel and its programs use named.
constexpr std::string_view kTcgCpu =
    "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2,+fsgsbase,+popcnt,+smep";

bool emulated(const plan::MicrovmPlan& microvm)
{
    return microvm.accelerator == plan::Accelerator::tcg;
}

std::string mebibytes(Bytes bytes) { return std::to_string(bytes.count / kMiB) + "M"; }

// Every word is ours or a number: there is no place for text of a profile.
class VmmArguments {
public:
    VmmArguments(const plan::MicrovmPlan& microvm, const std::vector<ShareServer>& servers)
        : microvm_(microvm), servers_(servers)
    {
    }

    std::vector<std::string> list()
    {
        out_ = {"qemu-system-" + microvm_.guest_arch};
        for (const char* flag : {"-nodefaults", "-no-user-config", "-no-reboot"}) {
            out_.emplace_back(flag);
        }
        add("-display", "none");
        add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
        machine();
        control();
        devices();
        shares();
        add("-kernel", std::string(kKernelFile));
        add("-initrd", std::string(kInitrdFile));
        return std::move(out_);
    }

private:
    void add(const char* option, std::string value)
    {
        out_.emplace_back(option);
        out_.push_back(std::move(value));
    }

    void machine()
    {
        // virtiofsd and today's guests speak modern virtio only.
        add("-global", "virtio-mmio.force-legacy=false");
        // Debian's kernel is told of virtio-mmio devices by ACPI alone, and waits for an RTC.
        std::string machine = "microvm,acpi=on,rtc=on,isa-serial=on,auto-kernel-cmdline=off";
        if (!servers_.empty()) machine += ",memory-backend=memory";
        add("-machine", std::move(machine));
        if (emulated(microvm_)) {
            add("-accel",
                "tcg,thread=multi,tb-size=" + std::to_string(plan::kTranslationCache.count / kMiB));
            add("-cpu", std::string(kTcgCpu));
        } else {
            // One accelerator: where it fails QEMU ends and never falls back to emulation.
            add("-accel", "kvm");
            add("-cpu", "host");
        }
        add("-m", mebibytes(microvm_.memory));
        const std::string cpus = std::to_string(microvm_.cpus);
        add("-smp", "cpus=" + cpus + ",maxcpus=" + cpus);
        if (servers_.empty()) return;
        // Shared with virtiofsd, and for nothing else.
        add("-object",
            "memory-backend-memfd,id=memory,size=" + mebibytes(microvm_.memory) + ",share=on");
    }

    void control()
    {
        add("-chardev", "socket,id=qmp,fd=" + std::to_string(kQmpFd));
        add("-mon", "chardev=qmp,mode=control");
        // Written to and never read: a console that cannot be typed at.
        add("-add-fd", "fd=" + std::to_string(kConsoleFd) + ",set=1");
        // append: anything else truncates, which a pipe refuses.
        add("-chardev", "file,id=console,path=/dev/fdset/1,append=on");
        add("-serial", "chardev:console");
    }

    void devices()
    {
        add("-object", "rng-builtin,id=random");
        add("-device", "virtio-rng-device,rng=random");
        add("-chardev", "socket,id=channel,fd=" + std::to_string(kChannelFd));
        add("-device", "virtio-serial-device,max_ports=2");
        add("-device", "virtserialport,chardev=channel,nr=1,name=" + std::string(kPortName));
    }

    void shares()
    {
        int fd = kFirstShareFd;
        for (const ShareServer& server : servers_) {
            add("-chardev", "socket,id=" + server.tag + ",fd=" + std::to_string(fd++));
            add("-device", "vhost-user-fs-device,queue-size=1024,chardev=" + server.tag +
                               ",tag=" + server.tag);
        }
    }

    const plan::MicrovmPlan& microvm_;
    const std::vector<ShareServer>& servers_;
    std::vector<std::string> out_;
};

std::vector<std::string> kernel_parameters(const plan::MicrovmPlan& microvm)
{
    // reboot=t and panic=-1: a guest that ends or fails resets, and QEMU with -no-reboot exits.
    std::vector<std::string> out{"console=ttyS0", "quiet", "reboot=t", "panic=-1",
                                 "cryptomgr.notests"};
    // Patching a running kernel's text is slow where every page of it was translated.
    if (emulated(microvm)) out.emplace_back("noreplace-smp");
    return out;
}

std::vector<Descriptor> vmm_descriptors(const std::vector<ShareServer>& servers)
{
    std::vector<Descriptor> out{
        {0, Role::null, {}},     {1, Role::messages, {}},         {2, Role::messages, {}},
        {kQmpFd, Role::qmp, {}}, {kChannelFd, Role::channel, {}}, {kConsoleFd, Role::console, {}}};
    int fd = kFirstShareFd;
    for (const ShareServer& server : servers) out.push_back({fd++, Role::share, server.tag});
    return out;
}

MountIdMap id_map(plan::Ownership ownership, const plan::PlanContent& plan, const Binding& binding)
{
    const std::uint32_t base = binding.id_base;
    switch (ownership) {
    case plan::Ownership::overflow: return {};
    case plan::Ownership::idmap_user:
        return {{{plan.process.uid, base + plan.process.uid, 1}},
                {{plan.process.gid, base + plan.process.gid, 1}}};
    case plan::Ownership::idmap_all:
        return {{{0, base, plan.security.id_count}}, {{0, base, plan.security.id_count}}};
    }
    return {};
}

void add_server(std::vector<ShareServer>& servers, const plan::PlanContent& plan,
                const Binding& binding, Access access)
{
    const bool read_only = access == Access::read_only;
    ShareServer server;
    server.tag = read_only ? kReadOnlyTag : kWritableTag;
    server.access = access;
    server.steps.emplace_back(RootTmpfs{binding.id_base, kServedTreeSize});
    const auto& shares = plan.microvm->shares;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        if (shares[i].read_only != read_only) continue;
        server.steps.emplace_back(BindMount{shares[i].source, std::to_string(i), access,
                                            id_map(shares[i].ownership, plan, binding),
                                            Ground::ours});
    }
    if (server.steps.size() == 1) return;
    // Nothing but the shares themselves is written to.
    server.steps.emplace_back(SealRoot{});
    server.argv = {"virtiofsd", "--fd=" + std::to_string(kServeFd), "-f", "-o",
                   "source=" + std::string(kServedRoot), "-o", "sandbox=namespace", "-o",
                   "cache=auto",
                   // The limit is set before it starts: raising it is not its to do.
                   "--rlimit-nofile=0"};
    server.descriptors = {{0, Role::null, {}},
                          {1, Role::messages, {}},
                          {2, Role::messages, {}},
                          {kServeFd, Role::serve, server.tag}};
    servers.push_back(std::move(server));
}

Status translate(HostPath& source, const plan::MicrovmPlan& microvm, bool read_only,
                 plan::Ownership ownership)
{
    const auto place = find_share(microvm.shares, source.str(), read_only, ownership);
    if (!place) {
        return fail(Code::invalid_argument,
                    "no " + std::string(read_only ? "read-only" : "writable") +
                        " share of the plan holds " + escaped(source.str()));
    }
    source = inside(microvm.shares, *place);
    return {};
}

plan::Ownership ownership_of(const MountIdMap& map, const plan::PlanContent& plan)
{
    if (map.uids.empty()) return plan::Ownership::overflow;
    return map.uids.front().count == plan.security.id_count ? plan::Ownership::idmap_all
                                                            : plan::Ownership::idmap_user;
}

// The host's tree with the guest's ids and sources: owners were mapped where the share is served.
Result<std::vector<TreeStep>> guest_tree(const plan::ExecutionPlan& plan, Binding binding)
{
    binding.id_base = 0;
    std::vector<TreeStep> steps = TRY(compile_tree(plan, binding));
    for (TreeStep& step : steps) {
        if (auto* bind = std::get_if<BindMount>(&step)) {
            TRY_VOID(translate(bind->source, *plan->microvm, bind->access == Access::read_only,
                               ownership_of(bind->map, plan.content())));
            bind->map = {};
        } else if (auto* overlay = std::get_if<Overlay>(&step)) {
            TRY_VOID(translate(overlay->lower, *plan->microvm, true,
                               ownership_of(overlay->lower_map, plan.content())));
            overlay->lower_map = {};
        }
    }
    return steps;
}

Status check(const plan::PlanContent& plan)
{
    if (plan.driver != profile::Driver::microvm || !plan.microvm) {
        return fail(Code::invalid_argument, "the plan is for the driver " +
                                                std::string(to_string(plan.driver)) +
                                                ", not for microvm");
    }
    if (plan.microvm->guest_arch != "x86_64") {
        return fail(Code::invalid_argument,
                    "QEMU has no microvm machine for " + escaped(plan.microvm->guest_arch));
    }
    if (plan.network.mode != profile::NetworkMode::none) {
        return fail(Code::invalid_argument, "a guest has no network device");
    }
    return {};
}

canon::Json descriptors_json(const std::vector<Descriptor>& descriptors)
{
    canon::Json list = canon::Json::array();
    for (const Descriptor& one : descriptors) {
        canon::Json json{{"number", one.number}, {"role", to_string(one.role)}};
        if (!one.tag.empty()) json["tag"] = one.tag;
        list.push_back(std::move(json));
    }
    return list;
}

canon::Json files_json(const std::vector<JailFile>& files)
{
    canon::Json list = canon::Json::array();
    for (const JailFile& file : files)
        list.push_back({{"path", file.path}, {"artifact", file.artifact}});
    return list;
}

canon::Json servers_json(const std::vector<ShareServer>& servers)
{
    canon::Json list = canon::Json::array();
    for (const ShareServer& server : servers) {
        list.push_back({{"tag", server.tag},
                        {"arguments", server.argv},
                        {"descriptors", descriptors_json(server.descriptors)},
                        {"tree", tree_json(server.steps)}});
    }
    return list;
}

}  // namespace

std::string_view to_string(Role role) noexcept
{
    switch (role) {
    case Role::null: return "null";
    case Role::messages: return "messages";
    case Role::qmp: return "qmp";
    case Role::channel: return "channel";
    case Role::console: return "console";
    case Role::share: return "share";
    case Role::serve: return "serve";
    }
    return "null";
}

Result<MicrovmArtifact> compile(const plan::ExecutionPlan& plan, const Binding& binding)
{
    TRY_VOID(check(plan.content()));
    const plan::MicrovmPlan& microvm = *plan->microvm;
    MicrovmArtifact artifact;
    artifact.accelerator = microvm.accelerator;
    add_server(artifact.shares, plan.content(), binding, Access::read_only);
    add_server(artifact.shares, plan.content(), binding, Access::read_write);
    artifact.arguments = VmmArguments(microvm, artifact.shares).list();
    artifact.kernel_parameters = kernel_parameters(microvm);
    artifact.descriptors = vmm_descriptors(artifact.shares);
    artifact.files = {{std::string(kKernelFile), "guest.kernel"},
                      {std::string(kInitrdFile), "guest.initrd"}};
    if (!emulated(microvm)) artifact.files.push_back({"/dev/kvm", {}});
    artifact.host = microvm.host;
    artifact.service = service_of(plan.content());
    artifact.boot_deadline = emulated(microvm) ? kBootDeadlineTcg : kBootDeadlineKvm;
    artifact.steps = TRY_WITH(guest_tree(plan, binding), "compile the guest's file tree");
    artifact.bootstrap = TRY_WITH(
        compile_bootstrap(plan, binding,
                          {wire::BootMode::microvm, wire::BootChannel::virtio_serial, 0}),
        "compile the bootstrap record");
    artifact.digest = canon::digest(TRY(render(artifact)));
    return artifact;
}

Result<std::vector<std::string>> vmm_arguments(const MicrovmArtifact& artifact,
                                               LaunchTime at_launch)
{
    std::string parameters;
    for (const std::string& one : artifact.kernel_parameters) {
        parameters += (parameters.empty() ? "" : " ") + one;
    }
    if (artifact.accelerator == plan::Accelerator::tcg) {
        if (at_launch.tsc_khz == 0) {
            return fail(Code::invalid_argument,
                        "the frequency of this host's time stamp counter is unknown: an emulated "
                        "guest would hang while it measures it");
        }
        parameters += " tsc_early_khz=" + std::to_string(at_launch.tsc_khz);
    }
    std::vector<std::string> out = artifact.arguments;
    out.emplace_back("-append");
    out.push_back(std::move(parameters));
    return out;
}

Result<std::string> render(const MicrovmArtifact& artifact)
{
    const Service host{artifact.host.workload, artifact.host.control, artifact.host.controllers,
                       artifact.host.version};
    const canon::Json json{{"driver", "microvm"},
                           {"accelerator", plan::to_string(artifact.accelerator)},
                           {"vmm",
                            {{"arguments", artifact.arguments},
                             {"kernel_parameters", artifact.kernel_parameters},
                             {"descriptors", descriptors_json(artifact.descriptors)},
                             {"files", files_json(artifact.files)},
                             {"cgroup", cgroup_json(host)},
                             {"boot_deadline_ms", artifact.boot_deadline.count()}}},
                           {"shares", servers_json(artifact.shares)},
                           {"guest",
                            {{"tree", tree_json(artifact.steps)},
                             {"bootstrap", hex_json(artifact.bootstrap)},
                             {"cgroup", cgroup_json(artifact.service)},
                             {"service", service_json(artifact.service)}}}};
    return canon::serialize(json);
}

}  // namespace sandbox::driver::microvm
