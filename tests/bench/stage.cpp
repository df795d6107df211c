// SPDX-License-Identifier: Apache-2.0
#include "stage.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "canon/json.hpp"
#include "driver/sources.hpp"
#include "driver/tree_build.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::bench {

namespace {

using canon::Json;
namespace oci = driver::oci;

constexpr const char* kScratch = "/tmp";
constexpr std::uint64_t kScratchSize = 64ULL << 20;
constexpr std::size_t kMostConfig = 4U << 20;

Result<std::int64_t> to_number(const plan::CgroupSetting& setting)
{
    std::int64_t value = 0;
    const char* end = setting.value.data() + setting.value.size();
    if (std::from_chars(setting.value.data(), end, value).ptr != end)
        return fail(Code::invalid_argument, setting.file + " = " + setting.value + " is no number");
    return value;
}

// The plan's limits under the names that a runtime knows; what has none is an error, since the
// comparison would then not be of equals.
Result<Json> resources(const plan::ResourcePlan& plan)
{
    Json json = Json::object();
    for (const plan::CgroupSetting& setting : plan.workload) {
        const std::int64_t value = TRY(to_number(setting));
        if (setting.file == "pids.max")
            json["pids"]["limit"] = value;
        else if (setting.file == "memory.limit_in_bytes" || setting.file == "memory.max")
            json["memory"]["limit"] = value;
        else if (setting.file == "memory.memsw.limit_in_bytes")
            json["memory"]["swap"] = value;
        else if (setting.file == "cpu.shares")
            json["cpu"]["shares"] = value;
        else if (setting.file == "cpu.cfs_quota_us")
            json["cpu"]["quota"] = value;
        else if (setting.file == "cpu.cfs_period_us")
            json["cpu"]["period"] = value;
        else
            return fail(Code::unavailable, "no OCI name for " + setting.file);
    }
    return json;
}

// The workload is the container's own process here: our PID 1 would have given it this identity,
// this environment and no capability.
Result<std::string> bare_config(const plan::ExecutionPlan& plan, const oci::OciArtifact& artifact,
                                const std::vector<std::string>& argv, const std::string& cgroup,
                                const std::string& rootfs)
{
    Json config = TRY(canon::parse(artifact.config_json, {.bytes = kMostConfig, .depth = 64}));
    Json& process = config["process"];
    process["args"] = argv;
    process["cwd"] = plan->process.cwd.str();
    process["user"] = {{"uid", plan->process.uid}, {"gid", plan->process.gid}};
    process["env"] = Json::array();
    for (const auto& [name, value] : plan->process.env)
        process["env"].push_back(name + "=" + value);
    for (auto& set : process["capabilities"]) set = Json::array();
    config["linux"]["namespaces"].push_back({{"type", "cgroup"}});
    config["linux"]["resources"] = TRY(resources(plan->resources));
    config["linux"]["cgroupsPath"] = cgroup;
    config["root"]["path"] = rootfs;
    return canon::serialize(config);
}

// A plain tree that podman may write its mount points into.
Status make_podman_rootfs(int scratch)
{
    const std::string root = "podman-rootfs";
    TRY_VOID(sys::mkdir_at(scratch, root, 0755));
    for (const char* name : {"dev", "etc", "proc", "run", "sys", "tmp", "usr"})
        TRY_VOID(sys::mkdir_at(scratch, root + "/" + name, 0755));
    for (const char* name : {"bin", "lib", "lib64", "sbin"}) {
        const std::string target = std::string("usr/") + name;
        if (symlinkat(target.c_str(), scratch, (root + "/" + name).c_str()) != 0)
            return fail_errno("symlinkat", name);
    }
    const sys::UniqueFd usr = TRY(sys::open_dir("/usr"));
    const sys::UniqueFd clone = TRY(sys::clone_tree(usr.get(), "", sys::Depth::recursive));
    TRY_VOID(sys::set_mount_attributes(clone.get(), {.read_only = true}, sys::Depth::recursive));
    return sys::attach_tree(clone.get(), scratch, root + "/usr");
}

// In the new namespace. crun 1.8.1 starts nothing while it sees controllers of v2 beside v1.
Status furnish(const oci::OciArtifact& artifact, driver::PreparedSources sources,
               const std::string& config, const std::string& session_config)
{
    TRY_VOID(sys::make_all_private());
    const auto host = TRY(sys::cgroup::detect());
    if (const auto* unified = host.v2(); host.cover_unified && unified != nullptr) {
        const sys::UniqueFd cover = TRY(sys::make_tmpfs(1U << 20, 0755, {}));
        TRY_VOID(sys::attach_tree(cover.get(), AT_FDCWD, unified->mount));
    }
    // What podman keeps outside of the folders it is told to use ends with the namespace.
    for (const char* place : {"/run", "/dev/shm", kScratch}) {
        const sys::UniqueFd mount = TRY(sys::make_tmpfs(kScratchSize, 0755, {}));
        TRY_VOID(sys::attach_tree(mount.get(), AT_FDCWD, place));
    }
    const sys::UniqueFd scratch = TRY(sys::open_dir(kScratch));
    for (const char* name : {"state", "bundle", "bundle/rootfs", "sessions"})
        TRY_VOID(sys::mkdir_at(scratch.get(), name, 0755));
    TRY_VOID(driver::build_tree(artifact.steps, std::move(sources), scratch.get(), kScratch,
                                "bundle/rootfs"));
    TRY_VOID(sys::write_file_at(scratch.get(), "bundle/config.json", config, 0400));
    TRY_VOID(sys::write_file_at(scratch.get(), "sessions/config.json", session_config, 0400));
    return make_podman_rootfs(scratch.get());
}

void remove_in(const std::string& mount, const std::string& path, std::vector<std::string>& left)
{
    const std::string full = mount + path;
    const auto folder = sys::open_dir(full);
    if (!folder) return;
    if (const auto names = sys::list_dir(folder->get())) {
        for (const std::string& name : *names) {
            struct stat status{};
            if (fstatat(folder->get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISDIR(status.st_mode))
                remove_in(mount, path + "/" + name, left);
        }
    }
    if (rmdir(full.c_str()) != 0 && errno != ENOENT) left.push_back(full);
}

}  // namespace

Result<Stage> make_stage(const plan::ExecutionPlan& plan, const driver::Binding& binding,
                         const oci::OciArtifact& artifact, const std::vector<std::string>& argv)
{
    Stage stage;
    stage.cgroup = "/sandbox-bench-" + std::to_string(getpid());
    stage.crun_bundle = std::string(kScratch) + "/bundle";
    stage.podman_rootfs = std::string(kScratch) + "/podman-rootfs";
    stage.state = std::string(kScratch) + "/state";
    stage.crun_session_bundle = std::string(kScratch) + "/sessions";
    const std::string rootfs = stage.crun_bundle + "/rootfs";
    const std::string config = TRY(
        bare_config(plan, artifact, argv, stage.cgroup + "/bare", rootfs));
    const std::string session_config = TRY(bare_config(plan, artifact, {"/bin/sleep", "100000"},
                                                       stage.cgroup + "/bare-sessions", rootfs));
    auto sources = TRY(driver::prepare_sources(artifact.steps, binding));

    const sys::UniqueFd home = TRY(sys::open_file("/proc/self/ns/mnt", O_RDONLY));
    TRY_VOID(sys::unshare_namespaces(CLONE_NEWNS));
    const auto furnished = furnish(artifact, std::move(sources), config, session_config);
    stage.mount_namespace = TRY(sys::open_file("/proc/self/ns/mnt", O_RDONLY));
    if (setns(home.get(), CLONE_NEWNS) != 0) return fail_errno("setns", "home");
    if (!furnished) return fail(furnished.error());
    return stage;
}

std::vector<std::string> remove_cgroups(const std::string& cgroup)
{
    std::vector<std::string> left;
    const auto host = sys::cgroup::detect();
    if (!host) return {"cannot list the cgroup hierarchies: " + host.error().message()};
    for (const auto& hierarchy : host->hierarchies) remove_in(hierarchy.mount, cgroup, left);
    return left;
}

}  // namespace sandbox::bench
