//! The modules of a crate, and the definition that a path in one of them leads to.

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};

use anyhow::{Context as _, Result};

use super::text::{ALL, Import, Text};

/// The maximum number of imports that lead to one another; more are a cycle of imports.
const MAX_HOPS: usize = 8;

/// The modules of one crate; the first is its root.
#[derive(Debug)]
pub(super) struct Modules(Vec<Module>);

#[derive(Debug)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    text: Text,
}

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    module: usize,
    /// The name of an item there, [`ALL`], or nothing for the module itself.
    name: Option<&'a str>,
}

/// One file's use of a name in another.
#[derive(Debug)]
pub(super) struct Tie<'a> {
    pub(super) from: &'a FilePath,
    pub(super) to: &'a FilePath,
    pub(super) name: &'a str,
}

impl Modules {
    /// Reads the crate whose root is `file`; `source` returns the text of a file that exists.
    pub(super) fn read(
        file: &FilePath,
        source: &dyn Fn(&FilePath) -> Option<String>,
    ) -> Result<Self> {
        let mut modules = Self(Vec::new());
        let folder = file.parent().unwrap_or(file);
        let text = text_of(file, source)?;
        modules.add(None, file, folder, text, source)?;
        Ok(modules)
    }

    /// Adds a module and its submodules, whose files are in `folder`.
    fn add(
        &mut self,
        parent: Option<usize>,
        file: &FilePath,
        folder: &FilePath,
        mut text: Text,
        source: &dyn Fn(&FilePath) -> Option<String>,
    ) -> Result<usize> {
        let declared = std::mem::take(&mut text.modules);
        let id = self.0.len();
        self.0.push(Module {
            file: file.to_owned(),
            parent,
            children: BTreeMap::new(),
            text,
        });
        for (name, body) in declared {
            let inner = folder.join(&name);
            let child = if let Some(text) = body {
                self.add(Some(id), file, &inner, text, source)?
            } else {
                let beside = folder.join(format!("{name}.rs"));
                let inside = inner.join("mod.rs");
                let file = [beside, inside]
                    .into_iter()
                    .find(|file| source(file).is_some());
                let file = file.with_context(|| {
                    format!("no file for the module {name} in {}", folder.display())
                })?;
                let text = text_of(&file, source)?;
                self.add(Some(id), &file, &inner, text, source)?
            };
            if let Some(module) = self.0.get_mut(id) {
                module.children.insert(name, child);
            }
        }
        Ok(id)
    }

    /// The uses of names in other files. A module's uses of one that encloses it do not count: it belongs to
    /// that module, as a private item does.
    pub(super) fn ties(&self) -> Vec<Tie<'_>> {
        let mut ties = Vec::new();
        for (id, module) in self.0.iter().enumerate() {
            let Text {
                imports,
                paths,
                names,
                ..
            } = &module.text;
            // Re-exports do not count.
            let used = imports
                .iter()
                .filter(|import| !import.public || names.contains(&import.name));
            let used = used.filter_map(|import| self.imported(id, import));
            let paths = paths.iter().filter_map(|path| self.place(id, path, 0));
            for place in used.chain(paths) {
                let (Some(name), Some(to)) = (place.name, self.0.get(place.module)) else {
                    continue;
                };
                if !self.encloses(&to.file, id) {
                    ties.push(Tie {
                        from: &module.file,
                        to: &to.file,
                        name,
                    });
                }
            }
        }
        ties
    }

    /// Whether `file` contains this module or one that encloses it.
    fn encloses(&self, file: &FilePath, id: usize) -> bool {
        let mut around = self.0.get(id);
        while let Some(module) = around {
            if module.file == file {
                return true;
            }
            around = module.parent.and_then(|parent| self.0.get(parent));
        }
        false
    }

    fn imported<'a>(&'a self, id: usize, import: &'a Import) -> Option<Place<'a>> {
        let place = self.place(id, &import.path, 0)?;
        let name = place.name.or_else(|| (import.name == ALL).then_some(ALL));
        Some(Place { name, ..place })
    }

    /// The target of a path from a module; `None` outside the crate.
    fn place<'a>(&'a self, from: usize, path: &'a [String], hops: usize) -> Option<Place<'a>> {
        let mut steps = path.iter();
        let first = steps.next()?;
        let mut place = match first.as_str() {
            "crate" => Place {
                module: 0,
                name: None,
            },
            "self" => Place {
                module: from,
                name: None,
            },
            "super" => Place {
                module: self.0.get(from)?.parent?,
                name: None,
            },
            _ => self.look_up(from, first, path.len() == 1, hops)?,
        };
        while let Some(step) = steps.next() {
            if place.name.is_some() {
                // A variant or an associated item.
                break;
            }
            let module = place.module;
            place = if step == "super" {
                Place {
                    module: self.0.get(module)?.parent?,
                    name: None,
                }
            } else {
                // A name without a definition comes from a macro.
                let made = Place {
                    module,
                    name: Some(step),
                };
                self.look_up(module, step, steps.len() == 0, hops)
                    .unwrap_or(made)
            };
        }
        Some(place)
    }

    /// The item that a name stands for in a module. A module and another item may share a name: within a path
    /// (`last` is false) it is the module.
    fn look_up<'a>(
        &'a self,
        id: usize,
        name: &'a str,
        last: bool,
        hops: usize,
    ) -> Option<Place<'a>> {
        let hops = hops.checked_add(1).filter(|hops| *hops <= MAX_HOPS)?;
        let module = self.0.get(id)?;
        let item = module.text.defined.get(name).map(|name| Place {
            module: id,
            name: Some(name),
        });
        let child = module.children.get(name).map(|child| Place {
            module: *child,
            name: None,
        });
        let here = if last { item.or(child) } else { child.or(item) };
        let imports = || module.text.imports.iter();
        let by_name = || {
            // An import does not lead to itself: `use regex::regex` is about another crate.
            let mut named = imports().filter(|import| {
                import.name == name && import.path.first().is_some_and(|first| first != name)
            });
            named.find_map(|import| self.place(id, &import.path, hops))
        };
        let by_glob = || {
            imports()
                .filter(|import| import.name == ALL)
                .find_map(|import| {
                    let all = self.place(id, &import.path, hops)?;
                    match all.name {
                        None if all.module != id => self.look_up(all.module, name, last, hops),
                        _ => None,
                    }
                })
        };
        here.or_else(by_name).or_else(by_glob)
    }
}

fn text_of(file: &FilePath, source: &dyn Fn(&FilePath) -> Option<String>) -> Result<Text> {
    let text = source(file).with_context(|| format!("cannot read {}", file.display()))?;
    Text::read(&text).with_context(|| format!("cannot read {}", file.display()))
}
