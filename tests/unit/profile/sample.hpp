// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace sandbox::profile {

// Every key once, none at its default.
inline constexpr std::string_view kEveryKey = R"(version = 1
name = "full"
labels = { team = "ml" }
isolation = "sandbox"
driver = "oci"
[process]
argv = ["/usr/bin/python3", "-I", "main.py"]
env = { LANG = "C.UTF-8" }
cwd = "/work"
user = "1001:1002"
umask = "0027"
terminal = true
timeout = "30s"
rlimits = { nofile = 1024 }
[rootfs]
source = "dir:/srv/root"
read_only = false
[[mount]]
type = "bind"
source = "/srv/data"
target = "/work"
read_only = false
[[mount]]
type = "tmpfs"
target = "/tmp"
size = "64MiB"
mode = "1777"
[[mount]]
type = "volume"
source = "cache"
target = "/cache"
[[mask]]
path = "/work/.env"
[network]
mode = "egress"
allow = ["api.example.com:443", "*.cdn.example.net:443"]
deny = ["internal.example.org:*"]
publish = [{ host = "127.0.0.1:8080", guest = 80 }]
[[network.rule]]
action = "allow"
host = "ns.example.com"
port = 53
protocol = "udp"
reason = "names"
[resources]
memory = "512MiB"
swap = "1MiB"
cpus = 1.5
cpu_weight = 50
cpuset = "0-1,4"
io_weight = 10
pids = 128
disk = "1GiB"
[security]
seccomp = "strict"
capabilities = ["CAP_NET_BIND_SERVICE", "CAP_CHOWN"]
[lifecycle]
restart = "on-failure"
backoff = "2s"
max_restarts = 3
stop_timeout = "5s"
autostart = true
ttl = "2h"
idle_timeout = "10m"
health = { argv = ["/bin/true"], interval = "11s", timeout = "3s", retries = 4 }
[secrets]
TOKEN = { env = "TOKEN" }
KEY = { file = "/run/secrets/key" }
[microvm]
cpus = 2
memory = "1GiB"
)";

// The least a profile says.
inline constexpr std::string_view kMinimal =
    "version = 1\nname = \"web\"\nisolation = \"sandbox\"\n[process]\nargv = [\"/bin/true\"]\n";

}  // namespace sandbox::profile
