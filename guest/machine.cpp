// SPDX-License-Identifier: Apache-2.0
#include "guest/machine.hpp"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "confine/box.hpp"
#include "guest/init.hpp"
#include "guest/machine_boot.hpp"
#include "guest/machine_box.hpp"
#include "guest/machine_groups.hpp"
#include "guest/mux_link.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::guest {
namespace {

using Items = std::vector<std::pair<std::string, std::string>>;

enum class Kernel { own, hosts };

// As the host has it for a container: 0 to 65535.
constexpr std::uint32_t kIds = 65536;  // of the workload's namespace, one to one
constexpr std::size_t kReportBytes = 3500;  // of one packet, which holds 4095

template <class M>
void tell(MuxLink& link, const M& message)
{
    if (auto packet = wire::encode_packet(message)) link.tell(std::move(*packet), Keep::always);
}

void explain(MuxLink& link, const Error& error)
{
    // 1024: the ceiling of INIT_LOG.
    tell(link, wire::InitLog{error.message().substr(0, 1024)});
    // Before the power goes, so that the operator learns why.
    link.drain();
}

// On the console, which nobody but an operator reads.
void complain(const Error& error)
{
    const std::string text = "sandbox-init: " + error.message() + "\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

// In packets of what fits: names and values are the kernel's, of any length.
void report(MuxLink& link, Items items)
{
    wire::GuestReport packet;
    std::size_t size = 0;
    for (auto& [name, observed] : items) {
        // Ceilings of GUEST_REPORT: 64 items, a value of 512 bytes.
        observed.resize(std::min<std::size_t>(observed.size(), 512));
        size += name.size() + observed.size() + 8;
        if (size > kReportBytes || packet.items.size() == 64) {
            tell(link, std::exchange(packet, {}));
            size = name.size() + observed.size() + 8;
        }
        packet.items.emplace_back(std::move(name), std::move(observed));
    }
    tell(link, packet);
}

// "ID PARENT MAJOR:MINOR ROOT TARGET OPTIONS ... - TYPE SOURCE SUPER" (proc(5)): what is mounted
// where, and how.
void add_mounts(Items& items, int proc)
{
    // 256 KiB and 256 lines: a tree of ours has fewer; the workload has not run yet.
    const auto text = sys::read_file_at(proc, "self/mountinfo", 256U << 10);
    if (!text) return;
    std::size_t at = 0;
    while (at < text->size() && items.size() < 256) {
        const std::size_t end = std::min(text->find('\n', at), text->size());
        const std::string_view line = std::string_view(*text).substr(at, end - at);
        at = end + 1;
        std::vector<std::string_view> words;
        for (std::size_t from = 0; from <= line.size();) {
            const std::size_t space = std::min(line.find(' ', from), line.size());
            words.push_back(line.substr(from, space - from));
            from = space + 1;
        }
        // Optional fields end with " - " (proc(5)); there are six words before them.
        std::size_t dash = 6;
        while (dash < words.size() && words[dash] != "-") ++dash;
        if (dash + 1 >= words.size()) continue;
        // The whole name within 64 bytes.
        const std::string target(words[4].substr(0, 57));
        items.emplace_back("mount:" + target,
                           std::string(words[dash + 1]) + " " + std::string(words[5]));
    }
}

Items observe(const std::optional<MachineGroups>& groups, const MachineBox& box,
              std::size_t modules)
{
    Items items;
    utsname name{};
    if (::uname(&name) == 0) {
        items.emplace_back("kernel.release", name.release);
        items.emplace_back("kernel.version", name.version);
        items.emplace_back("kernel.machine", name.machine);
    }
    items.emplace_back("modules", std::to_string(modules));
    if (groups)
        for (const auto& item : groups->report()) items.push_back(item);
    if (box.proc) add_mounts(items, box.proc.get());
    items.insert(items.end(), box.report.begin(), box.report.end());
    return items;
}

// Between the records and the loop: the tree, the limits, what is in force.
class Machine {
public:
    Machine(MuxLink& link, MuxLink::Records records, std::size_t modules, Kernel kernel)
        : link_(link), records_(std::move(records)), modules_(modules), kernel_(kernel)
    {
    }

    Status prepare()
    {
        const wire::Machine& wanted = records_.machine;
        // A test process must not mount over its host.
        if (kernel_ == Kernel::hosts && (!wanted.steps.empty() || wanted.loopback))
            return fail(Code::invalid_argument, "this kernel is not ours to change");
        if (wanted.steps.empty()) return {};
        // Limits before anything else may run; the tree after them, because it changes the root.
        groups_.emplace(TRY(MachineGroups::make(records_.machine)));
        // Sessions live in it: ids are the same there, and no capability of theirs reaches beyond
        // it. Made while /proc still shows its maker.
        user_namespace_ = TRY(sys::make_user_namespace({{0, 0, kIds}}, {{0, 0, kIds}}));
        box_ = TRY(enter_box(records_.machine));
        link_.leaves_from(
            [this](const std::string& session) { return groups_->make_leaf(session); });
        return {};
    }

    int run()
    {
        // Read back, not repeated: the host compares with its plan (law 8).
        report(link_, observe(groups_, box_, modules_));
        Surroundings around;
        around.own_clock = kernel_ == Kernel::own;
        around.user_namespace = user_namespace_.get();
        // Only after READY: policy is in force by then.
        if (records_.machine.loopback)
            around.ready = [] { static_cast<void>(confine::raise_loopback()); };
        if (groups_) {
            around.over = [this](const std::string& session) { groups_->retire(session); };
            around.oom_kills = [this] { return groups_->oom_kills(); };
            around.memory_events = groups_->memory_events();
        }
        return Init(std::move(records_.boot), link_, std::move(around)).run();
    }

private:
    MuxLink& link_;
    MuxLink::Records records_;
    std::size_t modules_;
    Kernel kernel_;
    std::optional<MachineGroups> groups_;
    sys::UniqueFd user_namespace_;
    MachineBox box_;
};

int serve(sys::UniqueFd port, std::size_t modules, Kernel kernel)
{
    // Outlives Machine and Init, which hold references.
    MuxLink link(std::move(port));
    auto records = link.await_records();
    if (!records) {
        complain(records.error());
        return 1;
    }
    Machine machine(link, std::move(*records), modules, kernel);
    if (const Status ready = machine.prepare(); !ready) {
        // Both ways: the host may be reading only one.
        complain(ready.error());
        explain(link, ready.error());
        return 1;
    }
    const int status = machine.run();
    // The last words, SESSION_ENDED among them.
    link.drain();
    return status;
}

}  // namespace

void run_machine()
{
    auto booted = boot_machine();
    if (booted)
        serve_machine(std::move(booted->port), booted->modules);
    else
        complain(booted.error());
    // Whatever happened: PID 1 of a machine has nowhere to return to.
    power_off();
}

int serve_machine(sys::UniqueFd port, std::size_t modules)
{
    return serve(std::move(port), modules, Kernel::own);
}

int run_on_socket(sys::UniqueFd socket)
{
    if (!sys::set_nonblocking(socket.get())) return 1;
    return serve(std::move(socket), 0, Kernel::hosts);
}

}  // namespace sandbox::guest
