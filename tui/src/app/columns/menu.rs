//! The menu in which the user chooses columns and their order.

use super::Column;

/// The menu: all columns, whether each is shown, and the selected line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnMenu {
    pub(crate) all: Vec<(Column, bool)>,
    pub(crate) at: usize,
}

impl ColumnMenu {
    /// The menu of these columns: the chosen ones in their order, then the hidden ones.
    pub(crate) fn new(chosen: Option<&[Column]>) -> Self {
        let all = Column::ALL.map(|(_, column)| column);
        let shown = chosen.unwrap_or(&all);
        let hidden = all.iter().filter(|column| !shown.contains(column));
        let shown = shown.iter().map(|column| (*column, true));
        Self {
            all: shown.chain(hidden.map(|column| (*column, false))).collect(),
            at: 0,
        }
    }

    /// Shows the selected column, or hides it. The key always stays: without it, rows have no name.
    pub(crate) fn toggle(&mut self) -> Result<(), &'static str> {
        match self.all.get_mut(self.at) {
            Some((Column::Key, true)) => {
                Err("the key is always shown: without it, rows have no name")
            }
            Some((_, is_shown)) => {
                *is_shown = !*is_shown;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Moves the selected column by a line.
    pub(crate) fn shift(&mut self, step: isize) {
        let to = self.at.checked_add_signed(step);
        if let Some(to) = to.filter(|to| *to < self.all.len()) {
            self.all.swap(self.at, to);
            self.at = to;
        }
    }

    /// The columns to show; `None` for the usual ones.
    pub(crate) fn chosen(&self) -> Option<Vec<Column>> {
        let shown = self.all.iter().filter(|(_, is_shown)| *is_shown);
        let shown: Vec<Column> = shown.map(|(column, _)| *column).collect();
        let usual = Column::ALL.map(|(_, column)| column);
        (shown != usual).then_some(shown)
    }

    /// The line of the config file for these columns.
    pub(crate) fn line(&self) -> String {
        let shown = self.all.iter().filter(|(_, is_shown)| *is_shown);
        let words = shown.map(|(column, _)| format!("\"{}\"", column.word()));
        format!("columns = [{}]", words.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_cannot_be_hidden() {
        let mut menu = ColumnMenu::new(None);
        assert_eq!(menu.chosen(), None);
        menu.at = 2;
        assert!(menu.toggle().is_err());
        menu.at = 0;
        assert_eq!(menu.toggle(), Ok(()));
        let shown = menu.chosen().expect("a choice");
        assert_eq!(shown.first(), Some(&Column::Rule));
        let again = ColumnMenu::new(Some(&shown));
        assert_eq!(again.all.last(), Some(&(Column::State, false)));
        assert_eq!(again.chosen(), Some(shown));
    }

    #[test]
    fn columns_move_with_the_selection() {
        let mut menu = ColumnMenu::new(Some(&[Column::Key, Column::Left]));
        assert_eq!(menu.line(), r#"columns = ["key", "remaining"]"#);
        menu.shift(-1);
        menu.shift(1);
        assert_eq!(menu.at, 1);
        assert_eq!(menu.chosen(), Some(vec![Column::Left, Column::Key]));
    }
}
