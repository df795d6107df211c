// SPDX-License-Identifier: Apache-2.0
// schemac OUT_DIR NAME.yaml…: turns each YAML schema into OUT_DIR/NAME.schema.json (published) and
// all of them into OUT_DIR/schemas.cpp (embedded). Runs at build time only.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace {

using Json = nlohmann::ordered_json;

Json scalar(const YAML::Node& node)
{
    const std::string& text = node.Scalar();
    // yaml-cpp tags a quoted scalar "!" and a plain one "?": only a plain one is typed.
    if (node.Tag() == "!") return text;
    if (text == "true") return true;
    if (text == "false") return false;
    if (text == "null" || text == "~") return nullptr;
    if (!text.empty() && text.find_first_not_of("-0123456789.") == std::string::npos) {
        const Json number = Json::parse(text, nullptr, false);
        if (number.is_number()) return number;
    }
    return text;
}

Json convert(const YAML::Node& node)
{
    if (node.IsScalar()) return scalar(node);
    if (node.IsNull()) return nullptr;
    if (node.IsSequence()) {
        Json list = Json::array();
        for (const YAML::Node& item : node) list.push_back(convert(item));
        return list;
    }
    Json object = Json::object();
    for (const auto& member : node) {
        const auto key = member.first.as<std::string>();
        if (object.contains(key)) throw std::runtime_error("the key '" + key + "' twice");
        object[key] = convert(member.second);
    }
    return object;
}

// Puts each definition where it is used. Draft 7 ignores what stands beside a "$ref"; here the
// description of the place wins over that of the definition.
Json inlined(const Json& node, const Json& definitions, int depth)
{
    constexpr int kMostDepth = 32;
    if (depth > kMostDepth) throw std::runtime_error("definitions refer to each other");
    if (node.is_array()) {
        Json list = Json::array();
        for (const Json& item : node) list.push_back(inlined(item, definitions, depth + 1));
        return list;
    }
    if (!node.is_object()) return node;
    Json object = Json::object();
    for (const auto& [key, value] : node.items()) {
        if (key == "$ref") {
            const std::string prefix = "#/definitions/";
            const auto ref = value.get<std::string>();
            if (!ref.starts_with(prefix)) throw std::runtime_error("cannot follow " + ref);
            const Json used = inlined(definitions.at(ref.substr(prefix.size())), definitions,
                                      depth + 1);
            for (const auto& [name, inner] : used.items()) {
                if (!node.contains(name)) object[name] = inner;
            }
        } else if (key != "definitions" || depth > 0) {
            object[key] = inlined(value, definitions, depth + 1);
        }
    }
    return object;
}

// The part that decides at run time. Patterns are left out: std::regex costs more than all the
// rest of a parse. So is uniqueItems: valijson compares and reports every pair, and a list of some
// thousand equal items takes gigabytes. The checks in code say the same with better messages.
Json lean(const Json& node, bool is_schema)
{
    if (node.is_array()) {
        Json list = Json::array();
        for (const Json& item : node) list.push_back(lean(item, is_schema));
        return list;
    }
    if (!node.is_object()) return node;
    Json object = Json::object();
    for (const auto& [key, value] : node.items()) {
        if (is_schema &&
            (key == "description" || key == "title" || key == "pattern" || key == "uniqueItems" ||
             key == "default" || key.starts_with("$") || key.starts_with("x-"))) {
            continue;
        }
        const bool names = is_schema && key == "properties";
        const bool data = is_schema && (key == "enum" || key == "const");
        object[key] = data ? value : lean(value, !names);
    }
    return object;
}

// Compilers promise no more than 64 KiB in one string literal: several, side by side, are one.
std::string literal(const std::string& text)
{
    constexpr std::size_t kPiece = 8192;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += kPiece) {
        out += "\n    R\"json(" + text.substr(at, kPiece) + ")json\"";
    }
    return out;
}

void write(const std::filesystem::path& path, const std::string& text)
{
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

void run(const std::filesystem::path& out, const std::vector<std::filesystem::path>& sources)
{
    std::string code =
        "// SPDX-License-Identifier: Apache-2.0\n// Made by schemac from schemas/*.yaml.\n"
        "#include \"profile/embedded.hpp\"\n\n"
        "namespace sandbox::profile {\n\nconst EmbeddedSchema kEmbeddedSchemas[] = {\n";
    for (const auto& source : sources) {
        const Json raw = convert(YAML::LoadFile(source.string()));
        const Json schema = inlined(raw, raw.value("definitions", Json::object()), 0);
        const std::string name = source.stem().string();
        write(out / (name + ".schema.json"), schema.dump(2) + "\n");
        code += "    {\"" + name + "\"," + literal(schema.dump()) + ",";
        code += literal(lean(schema, true).dump()) + "},\n";
    }
    code += "};\nconst std::size_t kEmbeddedSchemaCount = std::size(kEmbeddedSchemas);\n\n"
            "}  // namespace sandbox::profile\n";
    write(out / "schemas.cpp", code);
}

}  // namespace

int main(int argc, char** argv)
{
    if (argc < 3) {
        std::fprintf(stderr, "usage: schemac OUT_DIR NAME.yaml...\n");
        return 2;
    }
    try {
        run(argv[1], {argv + 2, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "schemac: %s\n", error.what());
        return 1;
    }
    return 0;
}
