// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "guest/machine_boot.hpp"
#include "sys/fd.hpp"

// PID 1 of a guest that does nothing but move bytes on its port: what the device itself takes. The
// host orders with 9 bytes, a letter and a little-endian count: 'e' echo so many bytes, each as it
// comes; 't' take so many, then say so with one byte; 'g' give so many.
namespace {

std::array<std::byte, 32768> g_piece;  // as much as a frame of ours carries

void wait_for(int port, short events)
{
    pollfd one{port, events, 0};
    while (::poll(&one, 1, -1) < 0 && errno == EINTR) {}
}

std::size_t take(int port, std::byte* into, std::size_t most)
{
    for (;;) {
        const ssize_t got = ::read(port, into, most);
        if (got > 0) return static_cast<std::size_t>(got);
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) sandbox::guest::power_off();
        wait_for(port, POLLIN);
    }
}

void give(int port, const std::byte* from, std::size_t size)
{
    while (size > 0) {
        const ssize_t put = ::write(port, from, size);
        if (put < 0 && errno != EAGAIN && errno != EINTR) sandbox::guest::power_off();
        if (put < 0) wait_for(port, POLLOUT);
        if (put > 0) from += put;
        if (put > 0) size -= static_cast<std::size_t>(put);
    }
}

void obey(int port)
{
    std::array<std::byte, 9> order;
    for (std::size_t got = 0; got < order.size();)
        got += take(port, order.data() + got, order.size() - got);
    std::uint64_t left = 0;
    std::memcpy(&left, order.data() + 1, sizeof left);
    const auto letter = static_cast<char>(order[0]);
    while (left > 0) {
        const std::size_t most = left < g_piece.size() ? static_cast<std::size_t>(left)
                                                       : g_piece.size();
        const std::size_t size = letter == 'g' ? most : take(port, g_piece.data(), most);
        if (letter != 't') give(port, g_piece.data(), size);
        left -= size;
    }
    if (letter == 't') give(port, g_piece.data(), 1);
}

}  // namespace

int main()
{
    const auto booted = sandbox::guest::boot_machine();
    if (!booted) {
        const std::string text = "bench: " + booted.error().message() + "\n";
        [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
        sandbox::guest::power_off();
    }
    give(booted->port.get(), g_piece.data(), 1);
    for (;;) obey(booted->port.get());
}
