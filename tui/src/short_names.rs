//! Short names for several addresses, without the parts that all addresses share.

/// Function that returns how many bytes can be removed at the start and at the end of all names, if
/// any.
type Step = fn(&[&str]) -> Option<(usize, usize)>;

/// Returns a name for each URL. Scheme, folder, port and domain are removed if all URLs share them
/// and the names stay distinct. If all URLs have the same host, only the ports remain. Names are
/// not escaped.
pub(crate) fn short_names(urls: &[&str]) -> Vec<String> {
    let mut names: Vec<&str> = urls.to_vec();
    let steps: [Step; 5] = [scheme, folder, host, port, domain];
    for step in steps {
        let Some((start, end)) = step(&names) else {
            continue;
        };
        let shorter = names.iter().map(|name| {
            let end = name.len().checked_sub(end)?;
            name.get(start..end).filter(|name| !name.is_empty())
        });
        let shorter: Option<Vec<&str>> = shorter.collect();
        if let Some(shorter) = shorter.filter(|names| are_apart(names)) {
            names = shorter;
        }
    }
    names.into_iter().map(ToOwned::to_owned).collect()
}

/// Returns an address without its scheme.
pub(crate) fn without_scheme(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest)
}

fn are_apart(names: &[&str]) -> bool {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| match pair {
        [one, other] => one != other,
        _ => true,
    })
}

/// Returns the length of a common scheme.
fn scheme(names: &[&str]) -> Option<(usize, usize)> {
    let schemes = ["http://", "https://"].into_iter();
    let mut common = schemes.filter(|scheme| names.iter().all(|name| name.starts_with(scheme)));
    common.next().map(|scheme| (scheme.len(), 0))
}

/// Returns the length of a common prefix up to a slash.
fn folder(names: &[&str]) -> Option<(usize, usize)> {
    let (first, rest) = names.split_first()?;
    let slashes = first.rmatch_indices('/');
    let mut folders = slashes.filter_map(|(at, slash)| first.get(..at.checked_add(slash.len())?));
    let folder = folders.find(|folder| rest.iter().all(|name| name.starts_with(folder)))?;
    (!rest.is_empty()).then_some((folder.len(), 0))
}

/// Returns the length of a common host, up to the colon before the port.
fn host(names: &[&str]) -> Option<(usize, usize)> {
    let (first, rest) = names.split_first()?;
    let end = first.rfind(':')?;
    let host = first.get(..=end)?;
    let is_common = !rest.is_empty() && rest.iter().all(|name| name.starts_with(host));
    is_common.then_some((end, 0))
}

/// Returns the length of a common port, with its colon.
fn port(names: &[&str]) -> Option<(usize, usize)> {
    let (first, rest) = names.split_first()?;
    let port = first.get(first.rfind(':')?..)?;
    let is_common = !rest.is_empty() && rest.iter().all(|name| name.ends_with(port));
    is_common.then_some((0, port.len()))
}

/// Returns the length of a common domain, including the dot in front of it. The numbers in an IP
/// address do not count as a domain.
fn domain(names: &[&str]) -> Option<(usize, usize)> {
    let (first, rest) = names.split_first()?;
    let domain = first.get(first.find('.')?..)?;
    let is_common = !rest.is_empty() && rest.iter().all(|name| name.ends_with(domain));
    let is_name = domain.chars().any(char::is_alphabetic);
    (is_common && is_name).then_some((0, domain.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_all_share_is_left_out() {
        let cases: [(&[&str], &[&str]); 13] = [
            (
                &["http://10.0.0.7:9911", "http://10.0.0.8:9911"],
                &["10.0.0.7", "10.0.0.8"],
            ),
            (
                &["http://127.0.0.1:41187", "http://127.0.0.1:35381"],
                &[":41187", ":35381"],
            ),
            (
                &[
                    "https://edge-1.example.com:9911",
                    "https://edge-2.example.com:9911",
                ],
                &["edge-1", "edge-2"],
            ),
            (
                &["http://edge:1", "https://edge:1"],
                &["http://edge", "https://edge"],
            ),
            (
                &["http://10.0.7.1:1", "http://10.0.8.1:1"],
                &["10.0.7.1", "10.0.8.1"],
            ),
            (
                &["unix:/run/a", "http://a:1"],
                &["unix:/run/a", "http://a:1"],
            ),
            (&["http://[::1]:1", "http://[::1]:2"], &[":1", ":2"]),
            (&["http://one:9911"], &["one:9911"]),
            (&["http://h:1/a", "http://h:1/b"], &["a", "b"]),
            (&["http://h/a", "http://h/a/b"], &["a", "a/b"]),
            (&["unix:/run/a.sock", "unix:/run/b.sock"], &["a", "b"]),
            (&[], &[]),
            (&["http://a:1", "http://a:1"], &["http://a:1", "http://a:1"]),
        ];
        for (urls, names) in cases {
            assert_eq!(short_names(urls), names, "{urls:?}");
        }
    }

    proptest! {
        #[test]
        fn names_stay_apart(urls in proptest::collection::hash_set("(http://|https://|)[a-c.:/é]{0,8}", 0..6)) {
            let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
            let names = short_names(&urls);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            prop_assert_eq!(names.len(), urls.len());
            prop_assert!(are_apart(&names), "{:?}", names);
            prop_assert!(names.iter().zip(&urls).all(|(name, url)| url.contains(name)));
            prop_assert!(urls.contains(&"") || names.iter().all(|name| !name.is_empty()));
        }
    }
}
