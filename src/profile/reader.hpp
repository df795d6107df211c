// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/document.hpp"
#include "profile/names.hpp"

namespace sandbox::profile {

// One table of a document, read value by value. A value of the wrong type reads as absent (the
// schema has complained already); one that has the type and no meaning is a diagnostic here. Cheap
// to copy. Borrows the document, which must outlive the reader and not be moved.
class Reader {
public:
    explicit Reader(Document& document) : document_(&document), json_(&document.json) {}

    // Also for a value of the wrong type: it was written.
    bool has(std::string_view name) const { return find(name) != nullptr; }
    std::string path(std::string_view name) const { return member_path(path_, name); }
    const std::string& path() const { return path_; }

    // A table that is not there reads as an empty one.
    Reader table(std::string_view name) const;
    std::vector<Reader> tables(std::string_view name) const;  // items that are tables
    std::vector<std::string> keys() const;

    // Nothing: absent, or of another type. None of these four complains.
    std::optional<std::string> text(std::string_view name) const;
    std::optional<bool> flag(std::string_view name) const;
    std::optional<std::uint64_t> integer(std::string_view name) const;  // at most kMostInteger
    std::optional<std::uint32_t> small(std::string_view name) const;
    // Nothing after a complaint, too. Sizes in bytes ("512MiB"), durations in milliseconds
    // ("1h30m"), CPUs in thousandths (0.5), modes octal and at most `most`.
    std::optional<Bytes> size(std::string_view name);
    std::optional<Millis> duration(std::string_view name);
    std::optional<MilliCpus> cpus(std::string_view name);
    std::optional<std::uint32_t> mode(std::string_view name, std::uint32_t most);
    // Empty for what is no list; an item of another type is "".
    std::vector<std::string> texts(std::string_view name) const;

    template <class Enum>
    std::optional<Enum> choice(std::string_view name) const
    {
        const auto spelled = text(name);
        return spelled ? from_name<Enum>(*spelled) : std::nullopt;
    }

    // Complains about the member `name`.
    void refuse(std::string code, std::string_view name, std::string message,
                std::string hint = {});
    // The same for any path, of an item for example.
    void refuse_at(std::string code, const std::string& place, std::string message,
                   std::string hint = {});

private:
    Reader(Document* document, const canon::Json* json, std::string path)
        : document_(document), json_(json), path_(std::move(path))
    {
    }
    const canon::Json* find(std::string_view name) const;

    Document* document_;
    const canon::Json* json_;  // null for a table that is not there
    std::string path_;
};

// Adds `more`, leaving out complaints about a key that has one already: the first says why. Stops
// at kMostDiagnostics.
void add_new(std::vector<Diagnostic>& diagnostics, std::vector<Diagnostic> more);

}  // namespace sandbox::profile
