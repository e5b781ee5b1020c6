//! Technologies: which of them a head names, and whether they are those of a project.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use crate::words::tokens;

/// A technology with the words that heads use for it.
struct Technology {
    name: &'static str,
    /// Technologies that every project with this technology has as well.
    implies: &'static [&'static str],
    /// Words in lower case, found in any case; a word with a capital letter is found only so,
    /// because in lower case it means something else, too. A blank separates two words.
    words: &'static [&'static str],
}

macro_rules! technologies {
    ($($name:literal $([$($implies:literal),*])? : $($word:literal),* ;)*) => {
        &[$(Technology {
            name: $name,
            implies: &[$($($implies),*)?],
            words: &[$($word),*],
        }),*]
    };
}

/// Sorted by name.
const TECHNOLOGIES: &[Technology] = technologies! {
    "android": "android", "jetpack compose", "gradle android";
    "angular" ["javascript", "typescript"]: "Angular", "angularjs";
    "ansible": "Ansible";
    "astro" ["javascript"]: "Astro", "astro.js";
    "aws": "aws", "amazon web services", "Lambda", "cloudformation", "cdk", "dynamodb";
    "azure": "azure", "bicep";
    "bash": "bash", "shell script", "shell scripts", "zsh";
    "bun" ["javascript"]: "Bun";
    "c": "C", "c code";
    "clojure": "clojure", "clojurescript";
    "cmake": "cmake";
    "cpp": "c++", "cpp";
    "crystal": "Crystal";
    "css": "css", "sass", "scss", "tailwind", "tailwindcss";
    "cuda" ["cpp"]: "cuda";
    "dart": "Dart";
    "deno" ["javascript", "typescript"]: "Deno";
    "django" ["python"]: "django";
    "docker": "docker", "dockerfile", "docker-compose", "docker compose", "container image";
    "dotnet": ".net", "dotnet", "c#", "csharp", "f#", "asp.net", "blazor", "nuget", "msbuild", "maui",
        "wpf", "entity framework", "ef core", "xunit", "nunit", "mstest", "vb.net", "unity";
    "elasticsearch": "elasticsearch", "opensearch";
    "electron" ["javascript"]: "electron";
    "elixir": "Elixir", "Phoenix", "liveview";
    "erlang": "erlang";
    "express" ["javascript", "node"]: "Express", "express.js", "expressjs";
    "fastapi" ["python"]: "fastapi";
    "flask" ["python"]: "Flask";
    "flutter" ["dart"]: "Flutter";
    "gcp": "gcp", "google cloud", "bigquery", "gke";
    "github-actions": "github actions";
    "gitlab-ci": "gitlab ci", "gitlab-ci";
    "go": "Go", "golang", "goroutine", "goroutines";
    "graphql": "graphql", "apollo server";
    "haskell": "haskell", "ghc";
    "helm" ["kubernetes"]: "Helm";
    "html": "html";
    "ios" ["swift"]: "ios", "xcode", "swiftui", "uikit";
    "java": "java", "jvm", "maven", "junit", "Jakarta", "hibernate", "quarkus";
    "javascript": "javascript", "js", "ecmascript", "npm", "jest", "eslint", "vitest", "webpack", "vite";
    "jupyter" ["python"]: "jupyter";
    "kafka": "Kafka";
    "kotlin": "kotlin", "ktor";
    "kubernetes": "kubernetes", "k8s", "kubectl", "kustomize";
    "laravel" ["php"]: "laravel", "eloquent";
    "latex": "latex", "tex", "LaTeX";
    "lua": "Lua", "luajit";
    "matlab": "matlab";
    "mongodb": "mongodb", "mongoose";
    "mysql" ["sql"]: "mysql", "mariadb";
    "nestjs" ["javascript", "typescript", "node"]: "nestjs", "nest.js";
    "nextjs" ["javascript", "react"]: "next.js", "nextjs";
    "nim": "Nim";
    "nix": "Nix", "nixos";
    "node" ["javascript"]: "node.js", "nodejs", "Node";
    "nuxt" ["javascript", "vue"]: "nuxt", "nuxt.js";
    "ocaml": "ocaml";
    "pandas" ["python"]: "pandas";
    "perl": "Perl";
    "php": "php", "composer", "symfony", "wordpress", "phpunit";
    "postgresql" ["sql"]: "postgres", "postgresql", "psql";
    "powershell": "powershell", "pester";
    "prisma" ["javascript"]: "prisma";
    "python": "python", "pip", "pytest", "pypi", "py", "poetry", "ruff", "mypy", "asyncio", "pydantic";
    "pytorch" ["python"]: "pytorch", "torch";
    "qt" ["cpp"]: "qt", "qml";
    "r": "R", "rstudio", "ggplot2", "tidyverse", "shiny app", "cran";
    "rails" ["ruby"]: "Rails", "ruby on rails", "activerecord";
    "react" ["javascript"]: "React", "react.js", "reactjs", "jsx", "tsx";
    "react-native" ["javascript", "react"]: "react native", "react-native", "Expo";
    "redis": "Redis";
    "ruby": "Ruby", "rspec", "rubygems", "bundler", "rubocop";
    "rust": "Rust", "cargo", "clippy", "crates.io", "tokio";
    "salesforce": "salesforce", "apex class";
    "sass" ["css"]: "sass", "scss";
    "scala": "Scala", "sbt", "akka";
    "solidity": "solidity", "hardhat", "foundry";
    "spark": "pyspark", "apache spark", "Spark";
    "spring" ["java"]: "spring boot", "Spring", "springboot";
    "sql": "sql";
    "sqlite" ["sql"]: "sqlite";
    "svelte" ["javascript"]: "svelte", "sveltekit";
    "swift": "Swift", "swiftpm", "xctest";
    "tailwind" ["css"]: "tailwind", "tailwindcss";
    "tensorflow" ["python"]: "tensorflow", "keras";
    "terraform": "terraform", "opentofu", "hcl";
    "typescript" ["javascript"]: "typescript", "ts", "tsc";
    "unity" ["dotnet"]: "Unity", "unity3d";
    "unreal" ["cpp"]: "unreal", "unreal engine";
    "vue" ["javascript"]: "Vue", "vue.js", "vuejs", "pinia";
    "zig": "Zig";
};

/// The technologies, by name.
static BY_NAME: LazyLock<HashMap<&str, &Technology>> =
    LazyLock::new(|| TECHNOLOGIES.iter().map(|technology| (technology.name, technology)).collect());

/// The technologies that a word names, by the word in lower case; with each the word itself.
static BY_WORD: LazyLock<HashMap<String, Vec<(&str, &Technology)>>> = LazyLock::new(|| {
    let mut found: HashMap<String, Vec<(&str, &Technology)>> = HashMap::new();
    for technology in TECHNOLOGIES {
        for word in technology.words {
            found.entry(word.to_lowercase()).or_default().push((word, technology));
        }
    }
    found
});

/// The names that [`Project::new`] knows, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    TECHNOLOGIES.iter().map(|technology| technology.name)
}

/// The technologies of a project, with those that they imply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project(BTreeSet<&'static str>);

impl Project {
    /// A project of these technologies, each by its name or by a word for it; unknown ones are
    /// ignored.
    pub fn new<'a>(technologies: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = BTreeSet::new();
        for given in technologies {
            let given = given.trim();
            let lower = given.to_lowercase();
            let by_name = BY_NAME.get(lower.as_str()).copied();
            let by_word = || BY_WORD.get(&lower)?.first().map(|(_, technology)| *technology);
            if let Some(technology) = by_name.or_else(by_word) {
                found.insert(technology.name);
                found.extend(technology.implies);
            }
        }
        Self(found)
    }

    /// Whether no technology is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a head names a technology of the project.
    pub fn has_one_of(&self, head: &str) -> bool {
        !self.is_empty() && named(head, false).iter().any(|name| self.0.contains(name))
    }

    /// The technologies that a query names, whether it writes them with capital letters or not.
    pub fn of_query(query: &str) -> Self {
        Self::new(named(query, true))
    }

    /// Whether a document is about technologies of which neither this project nor the query has
    /// one: its title names them, and its head confirms that the words mean them.
    pub fn lacks_all_of(&self, title: &str, head: &str, of_query: &Self) -> bool {
        let by_title = named(&title.replace(['-', '_'], " "), true);
        let about: BTreeSet<_> = named(head, false).intersection(&by_title).copied().collect();
        !self.is_empty()
            && !about.is_empty()
            && about.is_disjoint(&self.0)
            && about.is_disjoint(&of_query.0)
    }
}

/// The technologies that a text names, if its words are written as they are or in any case.
fn named(text: &str, any_case: bool) -> BTreeSet<&'static str> {
    let tokens = tokens(text);
    let mut found = BTreeSet::new();
    let word = |at: usize| {
        let token = tokens.get(at)?;
        Some((text.get(token.start..token.end)?, &*token.text))
    };
    for at in 0..tokens.len() {
        let Some((written, lower)) = word(at) else { continue };
        let pair = word(at + 1).map(|(next, next_lower)| {
            (format!("{written} {next}"), format!("{lower} {next_lower}"))
        });
        let pair = pair.as_ref().map(|(written, lower)| (written.as_str(), lower.as_str()));
        for (written, lower) in [Some((written, lower)), pair].into_iter().flatten() {
            for (word, technology) in BY_WORD.get(lower).into_iter().flatten() {
                let fits = any_case || *word == lower || written == *word;
                if fits {
                    found.insert(technology.name);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_sorted_and_implies_known_technologies() {
        let names: Vec<&str> = names().collect();
        assert!(names.is_sorted_by(|left, right| left < right));
        for technology in TECHNOLOGIES {
            assert!(technology.implies.iter().all(|name| BY_NAME.contains_key(name)));
            assert!(!technology.words.is_empty());
        }
    }

    #[test]
    fn a_head_names_technologies_by_their_words() {
        let cases: &[(&str, &[&str])] = &[
            ("Reviews C# structs for performance", &["dotnet"]),
            ("Upgrades .NET libraries (ASP.NET, EF Core)", &["dotnet"]),
            ("Writes Go services; go through the logs first", &["go"]),
            ("Helps you go through a swift review and express thanks", &[]),
            ("Ruby on Rails migrations", &["rails", "ruby"]),
            ("Next.js and React components", &["nextjs", "react"]),
            ("a C++ build, R scripts and C code", &["c", "cpp", "r"]),
            ("Merges PDF files", &[]),
        ];
        for (head, expected) in cases {
            assert_eq!(named(head, false), expected.iter().copied().collect(), "{head}");
        }
    }

    #[test]
    fn a_project_compares_heads_with_its_technologies_and_those_they_imply() {
        let project = Project::new(["Django", "unheard-of"]);
        assert!(project.has_one_of("Writes Python tests"));
        assert!(project.has_one_of("Django models"));
        assert!(!project.has_one_of("Rust clippy fixes"));
        assert!(!project.has_one_of("Writes release notes"));
        assert_eq!(Project::new(["c#"]), Project::new(["dotnet"]));
        assert!(!Project::new(["unheard-of"]).has_one_of("Rust"));
    }

    #[test]
    fn a_project_lacks_what_a_title_is_about_unless_the_query_names_it() {
        let project = Project::new(["swift"]);
        let lacks = |title: &str, head: &str, query: &str| {
            project.lacks_all_of(title, head, &Project::of_query(query))
        };
        let native = "Builds mobile apps with React Native";
        assert!(lacks("react-native-expert", native, "the queue shows nothing"));
        assert!(!lacks("react-native-expert", native, "port it to react native"));
        assert!(!lacks("swift-expert", "Writes Swift", "the queue shows nothing"));
        assert!(!lacks("spring-cleaning", "Tidies files in spring", "the queue shows nothing"));
        assert!(!lacks("app-design", native, "the queue shows nothing"));
        let none = Project::default();
        assert!(!none.lacks_all_of("react-expert", "Writes React", &none));
        assert!(!Project::new(["vue"]).lacks_all_of("react-vue", "Writes React and Vue", &none));
    }

    proptest! {
        #[test]
        fn any_text_is_compared(head in "\\PC{0,80}", names in prop::collection::vec("\\PC{0,9}", 0..4)) {
            let project = Project::new(names.iter().map(String::as_str));
            prop_assert!(!project.has_one_of(&head) || !named(&head, false).is_empty());
            prop_assert!(!project.lacks_all_of(&head, &head, &Project::of_query(&head)));
        }
    }
}
