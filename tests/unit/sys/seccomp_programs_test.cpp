// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "child.hpp"
#include "sys/seccomp/compile.hpp"
#include "sys/seccomp/load.hpp"

namespace sandbox::sys::seccomp {

namespace {

using testing::in_child;
using testing::TempDir;

enum class Strict { works, not_asked };

struct Program {
    const char* name;
    const char* needs;   // must be there for the test to say anything
    const char* script;  // run by /bin/sh in an empty folder
    Strict strict;
};

// What people run in sandboxes: interpreters with threads and children, a compiler, version
// control, a downloader.
const Program kPrograms[] = {
    {"Shell", "/bin/bash",
     "bash -c 'set -e; echo a | cat > f; (exit 3) || test $? = 3; ls -l f; exec 3<f; read x <&3; "
     "test $x = a; trap : TERM; kill -TERM $$; sleep 0.01 & wait'",
     Strict::works},
    {"Coreutils", "/usr/bin/stat",
     "mkdir d && cp /bin/true d/t && mv d/t d/u && chmod 755 d/u && touch -d 2020-01-01 d/u && "
     "ln -s u d/l && stat d/l && df . && sort /etc/passwd | uniq -c | tail -1 && mkfifo p && "
     "dd if=/dev/zero of=z bs=64k count=4 && truncate -s 1M z && rm -r d p z && nproc && id",
     Strict::works},
    {"Busybox", "/bin/busybox", "busybox sh -c 'busybox ls / | busybox head -3; busybox ps'",
     Strict::works},
    {"Tar", "/bin/tar", "echo a > f && tar czf t.tgz f && rm f && tar xzf t.tgz && cat f",
     Strict::works},
    {"Python", "/usr/bin/python3",
     "python3 -I -c '\n"
     "import subprocess, threading, socket, tempfile, os, multiprocessing, asyncio, random, ssl\n"
     "t = threading.Thread(target=lambda: None); t.start(); t.join()\n"
     "assert subprocess.run([\"/bin/echo\", \"x\"], capture_output=True).stdout == b\"x\\n\"\n"
     "a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1) == b\"x\"\n"
     "tempfile.NamedTemporaryFile(dir=\".\").write(b\"x\")\n"
     "asyncio.run(asyncio.sleep(0))\n"
     "p = multiprocessing.Process(target=print); p.start(); p.join(); assert p.exitcode == 0\n'",
     Strict::works},
    {"PythonTcp", "/usr/bin/python3",
     "python3 -I -c '\n"
     "import socket\n"
     "s = socket.create_server((\"127.0.0.1\", 0)); c = socket.create_connection(s.getsockname())\n"
     "socket.if_nameindex(); socket.getaddrinfo(\"127.0.0.1\", 80)\n'",
     Strict::not_asked},
    {"Node", "/usr/bin/node",
     "node -e 'const c=require(\"child_process\");const f=require(\"fs\");f.writeFileSync(\"n\","
     "\"x\");if(c.execSync(\"cat n\").toString()!=\"x\")process.exit(1);f.promises.readFile(\"n\")."
     "then(()=>new (require(\"worker_threads\").Worker)(\"1\",{eval:true}))'",
     Strict::works},
    {"NodeInterfaces", "/usr/bin/node", "node -e 'require(\"os\").networkInterfaces()'",
     Strict::not_asked},
    {"Compiler", "/usr/bin/gcc",
     "echo 'int main(void){return 0;}' > m.c && gcc -O1 m.c -o m && ./m", Strict::works},
    {"Git", "/usr/bin/git",
     "export HOME=$PWD && git init -q r && cd r && echo a > f && git add f && "
     "git -c user.name=u -c user.email=e commit -qm m && git log --oneline && git gc -q && "
     "git clone -q . ../r2",
     Strict::works},
    {"Curl", "/usr/bin/curl", "echo hi > f && curl -sS file://$PWD/f && curl --version",
     Strict::works},
    {"Make", "/usr/bin/make", "printf 'all: a b\\na b:\\n\\ttouch $@\\n' > Makefile && make -j2",
     Strict::works},
};

int run_script(const Program& program, const Profile* profile)
{
    const TempDir dir;
    return in_child([&] {
               const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
               ::dup2(null, 0);
               ::dup2(null, 1);
               if (::chdir(dir.path().c_str()) != 0) return 201;
               if (profile != nullptr && load(compile(*profile, *native_arch())) != 0) return 202;
               ::execl("/bin/sh", "sh", "-e", "-c", program.script, nullptr);
               return 203;
           })
        .code;
}

class SeccompPrograms : public ::testing::TestWithParam<Program> {};

}  // namespace

TEST_P(SeccompPrograms, WorkUnderTheFilters)
{
    const Program& program = GetParam();
    if (::access(program.needs, X_OK) != 0)
        SKIP_VACUOUS(std::string(program.needs) + " is not installed");
    if (run_script(program, nullptr) != 0)
        SKIP_VACUOUS(std::string(program.name) + " fails without a filter too");
    const Profile standard = Profile::standard;
    const Profile strict = Profile::strict;
    EXPECT_EQ(run_script(program, &standard), 0);
    if (program.strict == Strict::works) {
        EXPECT_EQ(run_script(program, &strict), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(OfEveryday, SeccompPrograms, ::testing::ValuesIn(kPrograms),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace sandbox::sys::seccomp
